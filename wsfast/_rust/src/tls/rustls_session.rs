//! TLS by rustls, which is faster than OpenSSL; OpenSSL verifies for it.
//!
//! Records that arrive whole are decrypted where they lie, and plaintext is encrypted into the caller's memory. A session
//! keeps an unfinished record, or an unfinished handshake message in several records: rustls wants to see that again
//! whenever it is asked for anything.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus, WriteTraffic};
use rustls::{AlertDescription, CertificateError, CommonState, Error, OtherError};

use crate::tls::session::{Failure, Leftover, Room, Session, Step};
use crate::tls::stream::take_from;
use crate::tls::tickets::Client;
use crate::tls::verifier::Refused;

/// RFC 8446 section 5: type, version, size.
const HEADER: usize = 5;
/// Records of a handshake message that is not yet whole. rustls allows 64 KiB of content.
const MAX_UNFINISHED: usize = 96 * 1024;

/// The failure of a key that has encrypted as many records as it may.
pub const NO_MORE_RECORDS: &str = "no more records can be sent with this key";

/// Writes once the handshake is over.
type Writing<'w> = Option<&'w mut dyn FnMut(WriteTraffic<'_, ClientConnectionData>)>;

pub struct RustlsSession {
    pub connection: UnbufferedClientConnection,
    /// Received, and not yet taken by rustls.
    wire: Vec<u8>,
    plain: Leftover,
    /// Records to be sent before anything else.
    out: Vec<u8>,
    ended: bool,
    failure: Option<Failure>,
}

impl RustlsSession {
    pub fn new(client: &Client, name: &str, port: u16) -> Result<Self, String> {
        let name = ServerName::try_from(name.to_string()).map_err(|error| format!("{name}: {error}"))?;
        client.connect(port, |config| {
            let connection = UnbufferedClientConnection::new(config, name.clone())?;
            let (wire, plain, out) = (Vec::new(), Leftover::default(), Vec::new());
            let mut session = RustlsSession { connection, wire, plain, out, ended: false, failure: None };
            session.advance(&mut [], &mut Room::new(&mut []), None); // the ClientHello
            let size = session.to_send();
            Ok((session, size))
        })
    }

    /// The number of bytes that the first kept record lacks, as far as that is known.
    fn missing(&self) -> usize {
        let whole = match self.wire.get(3..HEADER) {
            None => HEADER,
            Some(size) => HEADER + usize::from(size[0]) * 256 + usize::from(size[1]),
        };
        whole.saturating_sub(self.wire.len())
    }

    fn keep(&mut self, wire: &[u8]) {
        if self.failure.is_none() && !self.ended {
            self.wire.extend_from_slice(wire);
        }
    }

    fn advance_kept(&mut self, room: &mut Room<'_>, writing: Writing<'_>) {
        let mut wire = std::mem::take(&mut self.wire);
        let done = self.advance(&mut wire, room, writing);
        if done < wire.len() && self.failure.is_none() && !self.ended {
            wire.drain(..done);
            self.wire = wire;
        }
    }

    /// Lets rustls work on `wire`. Returns how many bytes of it are done with.
    ///
    /// Calls `writing` at most once.
    fn advance(&mut self, wire: &mut [u8], room: &mut Room<'_>, writing: Writing<'_>) -> usize {
        let (size, mut done) = (wire.len(), 0);
        while self.failure.is_none() {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut wire[done..]);
            match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(Ok(record)) = records.next_record() {
                        self.plain.give(record.payload, room);
                    }
                    // rustls would only say that nothing is left, which costs as much as a short record.
                    if writing.is_none() && done + discard == size && !self.connection.wants_write() {
                        return done + discard;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(record)) => append(&mut self.out, record),
                Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
                Ok(ConnectionState::PeerClosed) => self.ended = true,
                Ok(ConnectionState::WriteTraffic(state)) => {
                    if let Some(write) = writing {
                        write(state);
                    }
                    return done + discard;
                }
                Ok(_) => return done + discard,
                Err(error) => {
                    self.failure = Some(failure(error));
                    self.take_alert(&mut wire[done..]);
                }
            }
            done += discard;
        }
        done
    }

    /// Takes the alert about a failure. rustls gives it before it reads the failing record again.
    fn take_alert(&mut self, wire: &mut [u8]) {
        while self.connection.wants_write() {
            match self.connection.process_tls_records(wire).state {
                Ok(ConnectionState::EncodeTlsData(record)) => append(&mut self.out, record),
                _ => return,
            }
        }
    }

    fn step(&self) -> Step {
        if !self.plain.is_empty() {
            Step::Full
        } else if self.failure.is_some() {
            Step::Failed
        } else if self.ended {
            Step::Ended
        } else {
            Step::Wants
        }
    }
}

impl Session for RustlsSession {
    fn state(&self) -> Option<&CommonState> {
        Some(&self.connection)
    }

    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn read(&mut self, mut wire: &mut [u8], plain: &mut Room<'_>) -> Step {
        self.plain.give_rest(plain);
        if !self.wire.is_empty() && !wire.is_empty() {
            // No more is copied than completes the record.
            while !wire.is_empty() && self.missing() > 0 {
                let (first, rest) = wire.split_at_mut(self.missing().min(wire.len()));
                self.wire.extend_from_slice(first);
                wire = rest;
            }
            if self.missing() == 0 {
                self.advance_kept(plain, None);
            }
            if !self.wire.is_empty() && !wire.is_empty() {
                self.wire.extend_from_slice(wire);
                wire = &mut [];
                self.advance_kept(plain, None);
            }
        }
        if !wire.is_empty() {
            let done = self.advance(wire, plain, None);
            self.keep(&wire[done..]);
        }
        if self.wire.len() > MAX_UNFINISHED {
            self.failure = Some(Failure::new("handshake message in too many records"));
        }
        self.step()
    }

    // TLS 1.2 allows 16 million records with a key for AES. TLS 1.3 changes the key before that.
    fn write(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let mut written = None;
        let mut encrypt = |mut traffic: WriteTraffic<'_, _>| written = traffic.encrypt(plain, out).ok();
        self.advance_kept(&mut Room::new(&mut []), Some(&mut encrypt));
        if written.is_none() && self.failure.is_none() {
            self.failure = Some(Failure::new(NO_MORE_RECORDS));
            self.take_alert(&mut []);
        }
        written
    }

    fn write_end(&mut self) {
        let mut alert = [0; 128];
        let mut size = 0;
        let mut end = |mut traffic: WriteTraffic<'_, _>| size = traffic.queue_close_notify(&mut alert).unwrap_or(0);
        self.advance_kept(&mut Room::new(&mut []), Some(&mut end));
        self.out.extend_from_slice(&alert[..size]);
    }

    fn to_send(&self) -> usize {
        self.out.len()
    }

    fn take(&mut self, out: &mut [u8]) -> usize {
        take_from(&mut self.out, out)
    }

    fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }
}

fn append(out: &mut Vec<u8>, mut record: EncodeTlsData<'_, ClientConnectionData>) {
    if let Err(EncodeError::InsufficientSize(wanted)) = record.encode(&mut []) {
        let start = out.len();
        out.resize(start + wanted.required_size, 0);
        let _ = record.encode(&mut out[start..]);
    }
}

fn failure(error: Error) -> Failure {
    if let Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = &error {
        if let Some(Refused { code, message }) = other.downcast_ref() {
            return Failure { certificate: Some(*code), message: message.clone() };
        }
    }
    match error {
        // OpenSSL accepted it, and rustls does not.
        Error::InvalidCertificate(_) => Failure { certificate: Some(1), message: error.to_string() },
        Error::AlertReceived(alert) => Failure::new(in_openssl_s_words(alert)),
        _ => Failure::new(error.to_string()),
    }
}

/// UnknownCA is "tlsv1 alert unknown ca". The version is the one that had such an alert first.
fn in_openssl_s_words(alert: AlertDescription) -> String {
    let mut text = match u8::from(alert) {
        0..=20 | 30 | 40..=47 => "sslv3 alert",
        109..=116 => "tlsv13 alert",
        _ => "tlsv1 alert",
    }
    .to_string();
    let mut in_capitals = false;
    for letter in format!("{alert:?}").chars() {
        if letter.is_uppercase() && !in_capitals {
            text.push(' ');
        }
        in_capitals = letter.is_uppercase();
        text.push(letter.to_ascii_lowercase());
    }
    text
}
