//! The sessions of rustls against a server of rustls: records however they come, floods, ends, and keys that wear out.

use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CipherSuiteCommon, SupportedCipherSuite, SupportedProtocolVersion, Tls12CipherSuite, Tls13CipherSuite};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, ServerConnection, SignatureScheme};

use crate::connection::memory_tests::with_a_failure;
use crate::io::buffer::Buffer;
use crate::io::errno::{CUT, TLS_FAILED};
use crate::io::socket::Socket;
use crate::tls::channel::{Channel, PIECE};
use crate::tls::rustls_session::{RustlsSession, NO_MORE_RECORDS};
use crate::tls::session::{overhead, Failure, Room, Step};
use crate::tls::stream::Stream;
use crate::tls::tickets::Client;

const TLS12: &SupportedProtocolVersion = &rustls::version::TLS12;
const TLS13: &SupportedProtocolVersion = &rustls::version::TLS13;

/// Of nobody.
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----
MIIBpDCCAUqgAwIBAgIUBSQF9EfiiW+S2EYMx1DSMajETS4wCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwOc2VydmVyLmV4YW1wbGUwIBcNMjYxMTIyMDczMTUxWhgPMjEy
NjEwMjkwNzMxNTFaMBkxFzAVBgNVBAMMDnNlcnZlci5leGFtcGxlMFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAE1x9rVgyQhOsw7xR4ooGQDdARYRKtNgSSaeLpr2zj
V3vDTkKjQcGnQS8JTOMsT1jo9z20vuMlifJZRY/Dh8HF1qNuMGwwHQYDVR0OBBYE
FIQeabocyw6qUnpQxTXSTFHPnXmdMB8GA1UdIwQYMBaAFIQeabocyw6qUnpQxTXS
TFHPnXmdMA8GA1UdEwEB/wQFMAMBAf8wGQYDVR0RBBIwEIIOc2VydmVyLmV4YW1w
bGUwCgYIKoZIzj0EAwIDSAAwRQIgfWYaGckpfUV353BcE1MO3AUkvMvzugJ7LQh4
ILiVpAQCIQCvVZZXbKqsMFxXPaievouKjG8rcdV8LlBUyHy0Kl3qDw==
-----END CERTIFICATE-----
";
const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQga81006j9YBdyQhsW
mV76ciW+BuiFtQXM0L2gb8HsmTmhRANCAATXH2tWDJCE6zDvFHiigZAN0BFhEq02
BJJp4umvbONXe8NOQqNBwadBLwlM4yxPWOj3PbS+4yWJ8llFj8OHwcXW
-----END PRIVATE KEY-----
";

/// Trusts everybody.
#[derive(Debug)]
struct Trust;

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls12_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// AES-GCM whose keys are worn out after so many records.
fn provider(records: u64) -> Arc<CryptoProvider> {
    let common = |common: &CipherSuiteCommon| CipherSuiteCommon { confidentiality_limit: records, ..*common };
    let SupportedCipherSuite::Tls12(old) = ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 else {
        panic!()
    };
    let SupportedCipherSuite::Tls13(new) = ring::cipher_suite::TLS13_AES_128_GCM_SHA256 else { panic!() };
    let old = Tls12CipherSuite { common: common(&old.common), ..*old };
    let new = Tls13CipherSuite { common: common(&new.common), ..*new };
    let cipher_suites = vec![
        SupportedCipherSuite::Tls13(Box::leak(Box::new(new))),
        SupportedCipherSuite::Tls12(Box::leak(Box::new(old))),
    ];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

fn client(version: &'static SupportedProtocolVersion, records: u64) -> Client {
    let builder = ClientConfig::builder_with_provider(provider(records)).with_protocol_versions(&[version]).unwrap();
    let config = builder.dangerous().with_custom_certificate_verifier(Arc::new(Trust)).with_no_client_auth();
    Client::new(config, Duration::from_secs(3600))
}

struct Server(ServerConnection);

impl Server {
    fn new() -> Self {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = builder.with_single_cert(vec![certificate], key).unwrap();
        let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
        connection.set_buffer_limit(None);
        Server(connection)
    }

    fn take(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut wire).unwrap();
        }
        wire
    }

    fn records(&mut self, plain: &[u8]) -> Vec<u8> {
        self.0.writer().write_all(plain).unwrap();
        self.take()
    }

    fn key_update(&mut self) -> Vec<u8> {
        self.0.refresh_traffic_keys().unwrap();
        self.take()
    }

    fn end(&mut self) -> Vec<u8> {
        self.0.send_close_notify();
        self.take()
    }

    /// Returns the client's plaintext, and true if the client has announced the end.
    fn read(&mut self, mut wire: &[u8]) -> Result<(Vec<u8>, bool), Error> {
        let (mut plain, mut ended) = (Vec::new(), false);
        while !wire.is_empty() {
            self.0.read_tls(&mut wire).unwrap();
            ended = self.0.process_new_packets()?.peer_has_closed();
            let _ = self.0.reader().read_to_end(&mut plain);
        }
        Ok((plain, ended))
    }
}

fn sent_by(stream: &mut Stream) -> Vec<u8> {
    let mut wire = vec![0; stream.to_send()];
    assert_eq!(stream.take(&mut wire), wire.len());
    wire
}

fn session(client: &Client) -> RustlsSession {
    RustlsSession::new(client, "server.example", 1).unwrap()
}

fn stream_of(client: &Client) -> Stream {
    Stream::new(session(client))
}

/// Reads into `plain`; how much, and what comes next.
fn fill(stream: &mut Stream, wire: &mut [u8], plain: &mut [u8]) -> (usize, Step) {
    // SAFETY: the session only writes.
    let memory = unsafe { std::slice::from_raw_parts_mut(plain.as_mut_ptr().cast(), plain.len()) };
    let mut room = Room::new(memory);
    let step = stream.read(wire, &mut room);
    (room.filled(), step)
}

/// A stream and its server, after the handshake.
fn pair_with(version: &'static SupportedProtocolVersion, records: u64) -> (Stream, Server) {
    let mut stream = stream_of(&client(version, records));
    let mut server = Server::new();
    while stream.session.is_handshaking() || server.0.is_handshaking() {
        server.read(&sent_by(&mut stream)).unwrap();
        fill(&mut stream, &mut server.take(), &mut []);
        assert_eq!(stream.failure(), None);
    }
    fill(&mut stream, &mut server.take(), &mut []); // tickets
    (stream, server)
}

fn pair(version: &'static SupportedProtocolVersion) -> (Stream, Server) {
    pair_with(version, u64::MAX)
}

fn read(stream: &mut Stream, mut wire: Vec<u8>) -> (Vec<u8>, Step) {
    let (mut got, mut plain) = (Vec::new(), vec![0; 100_000]);
    loop {
        let (size, step) = fill(stream, &mut wire, &mut plain);
        got.extend_from_slice(&plain[..size]);
        if step != Step::Full {
            return (got, step);
        }
        wire.clear();
    }
}

fn write(stream: &mut Stream, plain: &[u8]) -> Option<Vec<u8>> {
    let mut wire = vec![0; plain.len() + overhead(plain.len())];
    let size = stream.write(plain, &mut wire)?;
    wire.truncate(size);
    Some(wire)
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|place| (place % 251) as u8).collect()
}

#[test]
fn records_come_however_they_are_cut() {
    for version in [TLS12, TLS13] {
        for size in [1, 7, 1000, 16_400, 70_000] {
            let (mut stream, mut server) = pair(version);
            let plain = pattern(40_000);
            let mut got = Vec::new();
            let wire = [server.records(&plain), server.records(b"end")].concat();
            for piece in wire.chunks(size) {
                let (more, step) = read(&mut stream, piece.to_vec());
                assert_eq!(step, Step::Wants);
                got.extend(more);
            }
            assert_eq!(got, [&plain[..], b"end"].concat());
        }
    }
}

#[test]
fn what_has_no_room_is_kept_and_comes_first() {
    let (mut stream, mut server) = pair(TLS13);
    let plain = pattern(50_000);
    let mut wire = server.records(&plain);
    let (mut got, mut room) = (Vec::new(), [0; 999]);
    loop {
        let (size, step) = fill(&mut stream, &mut wire, &mut room);
        got.extend_from_slice(&room[..size]);
        wire = if got.len() == 999 { server.records(b"later") } else { Vec::new() };
        if step == Step::Wants {
            break;
        }
        assert_eq!((size, step), (999, Step::Full));
    }
    assert_eq!(got, [&plain[..], b"later"].concat());
}

#[test]
fn a_cut_stream_is_not_at_its_end() {
    let (mut stream, mut server) = pair(TLS13);
    let wire = server.records(b"message");
    let (got, step) = read(&mut stream, wire[..wire.len() - 1].to_vec());
    assert_eq!((&got[..], step), (&b""[..], Step::Wants));
}

#[test]
fn what_is_no_record_fails_for_good_behind_what_came_before() {
    for version in [TLS12, TLS13] {
        for wrong in
            [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0x17, 3, 3, 0xff, 0xff, 1], &[0x17, 3, 3, 0, 0], &[9; 99]]
        {
            let (mut stream, mut server) = pair(version);
            let wire = [server.records(b"good"), wrong.to_vec()].concat();
            assert_eq!(read(&mut stream, wire), (b"good".to_vec(), Step::Failed));
            assert!(stream.failure().is_some());
            let alert = sent_by(&mut stream);
            assert!(matches!(server.read(&alert), Err(Error::AlertReceived(_))), "{wrong:?}");
            assert_eq!(read(&mut stream, vec![0; 100]), (Vec::new(), Step::Failed));
            assert_eq!(write(&mut stream, b"too late"), None);
        }
    }
}

#[test]
fn a_changed_record_or_one_again_fails() {
    for version in [TLS12, TLS13] {
        let (mut stream, mut server) = pair(version);
        let mut wire = server.records(b"message");
        *wire.last_mut().unwrap() ^= 1;
        assert_eq!(read(&mut stream, wire), (Vec::new(), Step::Failed));
        let (mut stream, mut server) = pair(version);
        let wire = server.records(b"message");
        assert_eq!(read(&mut stream, [&wire[..], &wire[..]].concat()), (b"message".to_vec(), Step::Failed));
    }
}

#[test]
fn an_alert_is_told() {
    for version in [TLS12, TLS13] {
        let (mut stream, mut server) = pair(version);
        assert!(server.read(&[9; 99]).is_err());
        assert_eq!(read(&mut stream, server.take()), (Vec::new(), Step::Failed));
        let failure = stream.failure().unwrap();
        assert!(failure.message.contains("alert"), "{failure}");
    }
}

#[test]
fn keys_change_and_a_flood_of_changes_fails() {
    let (mut stream, mut server) = pair(TLS13);
    for _ in 0..100 {
        let wire = [server.key_update(), server.records(b"x")].concat();
        assert_eq!(read(&mut stream, wire), (b"x".to_vec(), Step::Wants));
    }
    let answers = sent_by(&mut stream);
    assert!(server.read(&answers).unwrap().0.is_empty());
    let flood: Vec<u8> = (0..33).flat_map(|_| server.key_update()).collect();
    assert_eq!(read(&mut stream, flood), (Vec::new(), Step::Failed));
}

#[test]
fn either_side_may_end_first_and_the_other_goes_on() {
    for version in [TLS12, TLS13] {
        let (mut stream, mut server) = pair(version);
        let wire = [server.records(b"last"), server.end(), b"what follows means nothing".to_vec()].concat();
        assert_eq!(read(&mut stream, wire), (b"last".to_vec(), Step::Ended));
        assert_eq!(read(&mut stream, b"nothing".to_vec()), (Vec::new(), Step::Ended));
        let more = write(&mut stream, b"more").unwrap();
        assert_eq!(server.read(&more), Ok((b"more".to_vec(), false)));
        stream.write_end();
        assert_eq!(server.read(&sent_by(&mut stream)), Ok((Vec::new(), true)));

        let (mut stream, mut server) = pair(version);
        stream.write_end();
        assert_eq!(server.read(&sent_by(&mut stream)), Ok((Vec::new(), true)));
        let wire = server.records(b"still");
        assert_eq!(read(&mut stream, wire), (b"still".to_vec(), Step::Wants));
        assert_eq!(read(&mut stream, server.end()), (Vec::new(), Step::Ended));
    }
}

/// A stream within TLS, and the servers of both.
fn nested(
    outer: &'static SupportedProtocolVersion,
    inner: &'static SupportedProtocolVersion,
) -> (Stream, Server, Server) {
    let (mut stream, mut proxy) = pair(outer);
    stream.carry(stream_of(&client(inner, u64::MAX)));
    let mut server = Server::new();
    while stream.session.is_handshaking() || server.0.is_handshaking() {
        server.read(&said(&mut stream, &mut proxy).0).unwrap();
        let mut wire = proxy.records(&server.take());
        fill(&mut stream, &mut wire, &mut []);
        assert_eq!(stream.failure(), None);
    }
    (stream, proxy, server)
}

/// Returns the stream's records as they come out of the proxy, and true if the stream has announced the end.
fn said(stream: &mut Stream, proxy: &mut Server) -> (Vec<u8>, bool) {
    let mut wire = vec![0; stream.to_send()];
    stream.take(&mut wire);
    proxy.read(&wire).unwrap()
}

#[test]
fn tls_within_tls() {
    let plain = pattern(100_000);
    for (outer, inner) in [(TLS12, TLS12), (TLS12, TLS13), (TLS13, TLS12), (TLS13, TLS13)] {
        let (mut stream, mut proxy, mut server) = nested(outer, inner);
        let mut out = vec![0; plain.len() + 2 * overhead(plain.len())];
        let size = stream.write(&plain, &mut out).unwrap();
        assert_eq!(server.read(&proxy.read(&out[..size]).unwrap().0).unwrap().0, plain);

        let wire = proxy.records(&server.records(&plain));
        let (mut got, mut room) = (Vec::new(), [0; 3000]);
        for piece in wire.chunks(2999) {
            let (mut piece, mut step) = (piece.to_vec(), Step::Full);
            while step == Step::Full {
                let size;
                (size, step) = fill(&mut stream, &mut piece, &mut room);
                got.extend_from_slice(&room[..size]);
                piece.clear();
            }
            assert_eq!(step, Step::Wants);
        }
        assert_eq!(got, plain);

        stream.write_end();
        let (records, ended) = said(&mut stream, &mut proxy);
        assert!(ended && server.read(&records).unwrap().1, "both are told");
        let mut wire = [proxy.records(&server.end()), proxy.end()].concat();
        assert_eq!(fill(&mut stream, &mut wire, &mut room), (0, Step::Ended));
    }
}

#[test]
fn a_proxy_that_ends_or_breaks_tls_is_no_end_of_the_server() {
    let (mut stream, mut proxy, mut server) = nested(TLS13, TLS13);
    let mut room = [0; 100];
    let mut wire = [proxy.records(&server.records(b"last")), proxy.end()].concat();
    assert_eq!(fill(&mut stream, &mut wire, &mut room), (4, Step::Cut));
    assert_eq!(stream.failure(), None);

    let (mut stream, mut proxy, mut server) = nested(TLS13, TLS13);
    let mut wire = [proxy.records(&server.records(b"last")), vec![9; 99]].concat();
    assert_eq!(fill(&mut stream, &mut wire, &mut room), (4, Step::Failed));
    assert!(stream.failure().is_some());

    let (mut stream, mut proxy, _server) = nested(TLS13, TLS13);
    let mut wire = proxy.records(&[9; 99]);
    assert_eq!(fill(&mut stream, &mut wire, &mut room), (0, Step::Failed));
    let (alert, _) = said(&mut stream, &mut proxy);
    assert_eq!(alert[0], 0x17, "the server is told");
}

#[test]
fn what_is_put_back_comes_first() {
    let (mut stream, mut server) = pair(TLS13);
    let mut room = [0; 2];
    assert_eq!(fill(&mut stream, &mut server.records(b"abcdefgh"), &mut room), (2, Step::Full));
    assert_eq!(fill(&mut stream, &mut [], &mut room), (2, Step::Full));
    stream.put_back(&room[1..]);
    assert_eq!(read(&mut stream, server.records(b"ij")), (b"defghij".to_vec(), Step::Wants));
}

/// Read, no limit of a key counts; what is sent beyond it is an error, with TLS 1.2, and not silently dropped.
#[test]
fn keys_wear_out() {
    let (mut stream, mut server) = pair_with(TLS13, 100);
    for _ in 0..1000 {
        let wire = write(&mut stream, b"x").unwrap();
        assert_eq!(server.read(&wire).unwrap().0, b"x");
    }
    let long = pattern(500_000);
    let wire = write(&mut stream, &long).unwrap();
    assert_eq!(server.read(&wire).unwrap().0, long);

    let (mut stream, mut server) = pair_with(TLS12, 100);
    for _ in 0..1000 {
        assert_eq!(read(&mut stream, server.records(b"x")).0, b"x");
    }
    let sent =
        (0..1000).take_while(|_| write(&mut stream, b"x").is_some_and(|wire| server.read(&wire).is_ok())).count();
    assert!((90..100).contains(&sent), "{sent}");
    assert_eq!(stream.failure(), Some(&Failure::new(NO_MORE_RECORDS)));
    assert_eq!(server.read(&sent_by(&mut stream)), Ok((Vec::new(), true)), "the server is told");
}

/// A channel after the handshake, its socket, the server's end of it, and the server.
fn connected(version: &'static SupportedProtocolVersion, records: u64) -> (Channel, Socket, UnixStream, Server) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let socket = Socket::new(ours.into_raw_fd());
    let mut channel = Channel::new(session(&client(version, records)));
    let mut server = Server::new();
    let (mut wire, mut plain) = ([0; 20_000], Buffer::new());
    while channel.is_handshaking() || server.0.is_handshaking() {
        channel.flush(&socket).unwrap();
        let size = theirs.read(&mut wire).unwrap();
        server.read(&wire[..size]).unwrap();
        channel.read(&mut server.take(), &mut plain).unwrap();
    }
    channel.flush(&socket).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (channel, socket, theirs, server)
}

#[test]
fn keys_of_the_blocking_client_wear_out() {
    for (version, most) in [(TLS12, 200), (TLS13, 1000)] {
        let (mut channel, socket, mut theirs, mut server) = connected(version, 200);
        let mut wire = [0; 20_000];
        let mut got = 0;
        let mut ended = false;
        for _ in 0..1000 {
            channel.write(b"x");
            let sent = channel.flush(&socket);
            while let Ok(size @ 1..) = theirs.read(&mut wire) {
                let (more, end) = server.read(&wire[..size]).unwrap();
                got += more.len();
                ended |= end;
            }
            if sent != Ok(true) {
                assert_eq!(sent, Err(TLS_FAILED));
                assert_eq!(channel.failure().message, NO_MORE_RECORDS);
                break;
            }
        }
        assert_eq!(ended, version == TLS12, "the server is told");
        assert!((most - 100..=most).contains(&got), "{got}");
        socket.release();
    }
}

#[test]
fn without_memory_a_channel_sends_whole_records_and_then_nothing() {
    for version in [TLS12, TLS13] {
        let (mut channel, socket, mut theirs, mut server) = connected(version, u64::MAX);
        let piece = pattern(PIECE);
        channel.write(b"whole");
        with_a_failure(|| channel.write(&piece));
        channel.write(b"nothing follows");
        assert_eq!(channel.flush(&socket), Err(CUT));
        let mut wire = vec![0; 2 * PIECE];
        let size = theirs.read(&mut wire).unwrap();
        assert_eq!(server.read(&wire[..size]), Ok((b"whole".to_vec(), false)));
        assert!(theirs.read(&mut wire).is_err());
        socket.release();
    }
}

#[test]
fn without_memory_a_channel_cannot_read() {
    let (mut channel, socket, _theirs, mut server) = connected(TLS13, u64::MAX);
    let mut records = server.records(&pattern(PIECE));
    let mut plain = Buffer::new();
    let failure = with_a_failure(|| channel.read(&mut records, &mut plain));
    assert_eq!(failure, Err(Failure::no_memory()));
    socket.release();
}
