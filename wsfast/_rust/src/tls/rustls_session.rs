//! The TLS of a connection by rustls, which is faster than OpenSSL; OpenSSL verifies for it.

use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, CommonState, Error, OtherError,
    SupportedCipherSuite,
};

use crate::io::buffer::Buffer;
use crate::io::errno::{would_block, Errno, NO_MORE_RECORDS};
use crate::io::socket::Socket;
use crate::parts::lifecycle::Cause;
use crate::tls::openssl::Pointer;
use crate::tls::stream_session::RECORD;
use crate::tls::tickets::Client;
use crate::tls::verifier::{Refused, Verifier};

pub struct Settings<'s> {
    /// An SSL_CTX, which verifies.
    pub context: Pointer,
    pub check_name: bool,
    pub tls12: bool,
    pub tls13: bool,
    /// As they stand in a ClientHello: each after its size.
    pub alpn: &'s [u8],
    /// PEM of the client's certificate and of its key.
    pub client: Option<(&'s [u8], &'s [u8])>,
    pub keylog: bool,
    /// See `Client::new`.
    pub resume_for: Duration,
}

impl Settings<'_> {
    /// The error is a reason.
    ///
    /// # Safety
    /// `context` is an SSL_CTX.
    pub unsafe fn build(&self) -> Result<Client, String> {
        let provider = Arc::new(ring::default_provider());
        let versions: Vec<_> = [(self.tls12, &rustls::version::TLS12), (self.tls13, &rustls::version::TLS13)]
            .into_iter()
            .filter_map(|(wanted, version)| wanted.then_some(version))
            .collect();
        let verifier = Verifier::new(self.context, self.check_name, provider.clone())?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|error| format!("the client's certificate: {error}"))?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the client's key: {error}"))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
            }
        };
        let mut alpn = self.alpn;
        while let Some((size, rest)) = alpn.split_first() {
            let (protocol, rest) = rest.split_at(usize::from(*size).min(rest.len()));
            config.alpn_protocols.push(protocol.to_vec());
            alpn = rest;
        }
        if self.keylog {
            config.key_log = Arc::new(rustls::KeyLogFile::new());
        }
        Ok(Client::new(config, self.resume_for))
    }
}

/// Records that are no messages: of the handshake, and alerts.
const OTHERS: u64 = 64;

pub struct RustlsSession {
    connection: ClientConnection,
    /// The ClientHello, until it is sent.
    hello: Vec<u8>,
    /// How many more may be sent with the one key of TLS 1.2. At its limit rustls ends the connection and takes what is
    /// written as if it were sent; TLS 1.3 changes the key.
    records: u64,
    worn_out: bool,
}

impl RustlsSession {
    pub fn new(client: &Client, name: &str, port: u16) -> Result<Self, String> {
        let name = ServerName::try_from(name.to_string()).map_err(|error| format!("{name}: {error}"))?;
        client.connect(port, |config| {
            let mut connection = ClientConnection::new(config, name.clone())?;
            // Whoever sends a long message has it in memory already.
            connection.set_buffer_limit(None);
            let mut session = RustlsSession { connection, hello: Vec::new(), records: u64::MAX, worn_out: false };
            let mut hello = Vec::new();
            session.take(&mut hello);
            let size = hello.len();
            session.hello = hello;
            Ok((session, size))
        })
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub fn read(&mut self, mut wire: &[u8], plain: &mut Buffer) -> Result<bool, Cause> {
        while !wire.is_empty() {
            // It copies at most one record, and none after the end.
            match self.connection.read_tls(&mut wire) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) => return Err(Cause::Tls(error.to_string())),
            }
            let processed = self.connection.process_new_packets();
            // Before an error there may have been something.
            if !matches!(&processed, Ok(state) if state.plaintext_bytes_to_read() == 0) {
                let mut reader = self.connection.reader();
                while let Ok(chunk) = reader.fill_buf() {
                    if chunk.is_empty() {
                        break;
                    }
                    plain.append(chunk).map_err(|_| Cause::Tls("out of memory".to_string()))?;
                    let size = chunk.len();
                    reader.consume(size);
                }
            }
            if processed.map_err(cause)?.peer_has_closed() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn state(&self) -> &CommonState {
        &self.connection
    }

    /// What is too much is not sent, and `flush` tells.
    pub fn write(&mut self, plain: &[u8]) {
        if self.records == u64::MAX {
            self.records = records_of(&self.connection);
        }
        let records = plain.len().div_ceil(RECORD) as u64;
        self.worn_out |= records > self.records;
        if self.worn_out {
            self.connection.send_close_notify();
            return;
        }
        self.records -= records;
        // It only fills buffers, which have no limit.
        let _ = self.connection.writer().write_all(plain);
    }

    pub fn write_end(&mut self) {
        self.connection.send_close_notify();
    }

    pub fn wants_write(&self) -> bool {
        self.connection.wants_write() || self.worn_out || !self.hello.is_empty()
    }

    pub fn take(&mut self, records: &mut Vec<u8>) {
        records.append(&mut self.hello);
        while self.connection.wants_write() {
            // A Vec takes all.
            if self.connection.write_tls(records).is_err() {
                return;
            }
        }
    }

    pub fn flush(&mut self, socket: &Socket) -> Result<bool, Errno> {
        while !self.hello.is_empty() {
            match socket.send(&self.hello) {
                Ok(size) => drop(self.hello.drain(..size)),
                Err(errno) if would_block(errno) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        let mut sink = Sink { socket, errno: 0 };
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut sink).is_err() {
                return if would_block(sink.errno) { Ok(false) } else { Err(sink.errno) };
            }
        }
        if self.worn_out {
            return Err(NO_MORE_RECORDS);
        }
        Ok(true)
    }
}

/// How many records may be sent after the handshake.
fn records_of(connection: &CommonState) -> u64 {
    match connection.negotiated_cipher_suite() {
        Some(SupportedCipherSuite::Tls12(suite)) => suite.common.confidentiality_limit.saturating_sub(OTHERS),
        _ => u64::MAX - 1,
    }
}

pub fn no_more_records() -> Cause {
    Cause::Tls("no more records can be sent with this key".to_string())
}

pub fn cause(error: Error) -> Cause {
    if let Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = &error {
        if let Some(Refused { code, message }) = other.downcast_ref() {
            return Cause::Certificate { code: *code, message: message.clone() };
        }
    }
    match error {
        // What the verifier accepted, and rustls does not.
        Error::InvalidCertificate(_) => Cause::Certificate { code: 1, message: error.to_string() },
        Error::AlertReceived(alert) => Cause::Tls(in_openssl_s_words(alert)),
        _ => Cause::Tls(error.to_string()),
    }
}

/// UnknownCA is "tlsv1 alert unknown ca". The version is the one that had such an alert first.
fn in_openssl_s_words(alert: AlertDescription) -> String {
    let mut words = match u8::from(alert) {
        0..=20 | 30 | 40..=47 => "sslv3 alert",
        109..=116 => "tlsv13 alert",
        _ => "tlsv1 alert",
    }
    .to_string();
    let mut in_capitals = false;
    for letter in format!("{alert:?}").chars() {
        if letter.is_uppercase() && !in_capitals {
            words.push(' ');
        }
        in_capitals = letter.is_uppercase();
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// The socket as rustls wants it, which keeps the errno.
struct Sink<'s> {
    socket: &'s Socket,
    errno: Errno,
}

impl Write for Sink<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(data)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Most often there is one record, and send(2) is cheaper than sendmsg(2).
        let sent = match slices {
            [slice] => self.socket.send(slice),
            _ => self.socket.send_vectored(slices),
        };
        sent.map_err(|errno| {
            self.errno = errno;
            io::Error::from_raw_os_error(errno)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
