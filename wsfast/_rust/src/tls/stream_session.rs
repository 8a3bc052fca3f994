//! TLS by rustls for somebody else's socket: takes what was received, and makes what is to be sent.
//!
//! Records that arrive whole are decrypted where they lie, and plaintext is encrypted into the caller's memory. Of what has
//! been received only an unfinished record is kept here, or a handshake message in several records: rustls wants to see
//! that again whenever it is asked for anything.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus, WriteTraffic};

use crate::parts::lifecycle::Cause;
use crate::tls::rustls_session::{cause, no_more_records};
use crate::tls::tickets::Client;

/// RFC 8446 section 5: type, version, size.
const HEADER: usize = 5;
/// The plaintext of a record, at most.
pub const RECORD: usize = 16 * 1024;
/// Records of a handshake message that is not yet whole. rustls allows 64 KiB of content.
const MAX_UNFINISHED: usize = 96 * 1024;

type Traffic<'t> = WriteTraffic<'t, ClientConnectionData>;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// More must be received.
    Wants,
    /// There is more plaintext than room.
    Full,
    /// The peer said that nothing follows.
    Ended,
    /// See `failed`.
    Failed,
    /// The proxy said that nothing follows, and the server did not.
    Cut,
}

/// What `write` needs more than so many bytes of plaintext: a header, a nonce and a tag for each record, and a KeyUpdate.
pub fn overhead(size: usize) -> usize {
    (size / RECORD + 1) * 32 + 64
}

/// It does no input or output, and runs no Python.
pub struct StreamSession {
    pub connection: UnbufferedClientConnection,
    /// Received, and not yet taken by rustls.
    wire: Vec<u8>,
    /// Decrypted from `plain_from` on, when there was no room for it.
    plain: Vec<u8>,
    plain_from: usize,
    /// To be sent before anything else.
    out: Vec<u8>,
    ended: bool,
    pub failed: Option<Cause>,
}

impl StreamSession {
    pub fn new(client: &Client, name: &str, port: u16) -> Result<Self, String> {
        let name = ServerName::try_from(name.to_string()).map_err(|error| format!("{name}: {error}"))?;
        client.connect(port, |config| {
            let connection = UnbufferedClientConnection::new(config, name.clone())?;
            let (wire, plain, out) = (Vec::new(), Vec::new(), Vec::new());
            let mut session = StreamSession { connection, wire, plain, plain_from: 0, out, ended: false, failed: None };
            session.advance(&mut [], &mut Room::none(), |_| {}); // the ClientHello
            let size = session.to_send();
            Ok((session, size))
        })
    }

    /// How much `take` gives.
    pub fn to_send(&self) -> usize {
        self.out.len()
    }

    /// What is to be sent, as much as fits.
    pub fn take(&mut self, out: &mut [u8]) -> usize {
        let size = self.out.len().min(out.len());
        out[..size].copy_from_slice(&self.out[..size]);
        self.out.drain(..size);
        if self.out.is_empty() {
            self.out = Vec::new(); // it is needed again once in a year
        }
        size
    }

    /// Takes all of `wire`, which it changes, and puts what that says into `plain`. Returns how much it is.
    pub fn read(&mut self, mut wire: &mut [u8], plain: &mut [u8]) -> (usize, Step) {
        let mut room = Room { plain, filled: 0 };
        self.give_plain(&mut room);
        if !self.wire.is_empty() && !wire.is_empty() {
            // No more is copied than completes the record.
            while !wire.is_empty() && self.missing() > 0 {
                let (first, rest) = wire.split_at_mut(self.missing().min(wire.len()));
                self.wire.extend_from_slice(first);
                wire = rest;
            }
            if self.missing() == 0 {
                self.advance_kept(&mut room, |_| {});
            }
            if !self.wire.is_empty() && !wire.is_empty() {
                self.wire.extend_from_slice(wire);
                wire = &mut [];
                self.advance_kept(&mut room, |_| {});
            }
        }
        if !wire.is_empty() {
            let done = self.advance(wire, &mut room, |_| {});
            self.keep(&wire[done..]);
        }
        if self.wire.len() > MAX_UNFINISHED {
            self.failed = Some(Cause::Tls("handshake message in too many records".to_string()));
        }
        (room.filled, self.step())
    }

    /// Encrypts into `out`. None: it has failed, and what `take` gives tells the peer that nothing follows. TLS 1.2 allows
    /// 16 million records with AES; TLS 1.3 changes the key before that.
    pub fn write(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let mut written = None;
        self.advance_kept(&mut Room::none(), |mut traffic| written = traffic.encrypt(plain, out).ok());
        if written.is_none() && self.failed.is_none() {
            self.failed = Some(no_more_records());
            self.take_alert(&mut []);
        }
        written
    }

    /// Encrypts what is to be sent before anything else.
    pub fn queue(&mut self, plain: &[u8]) {
        let mut records = vec![0; plain.len() + overhead(plain.len())];
        let size = if plain.is_empty() { Some(0) } else { self.write(plain, &mut records) };
        self.out.extend_from_slice(&records[..size.unwrap_or(0)]);
    }

    /// Gives `plain` again, before anything else.
    pub fn put_back(&mut self, plain: &[u8]) {
        self.plain.splice(..self.plain_from, plain.iter().copied());
        self.plain_from = 0;
    }

    /// Says that nothing follows.
    pub fn write_end(&mut self) {
        let mut alert = [0; 128];
        let mut size = 0;
        self.advance_kept(&mut Room::none(), |mut traffic| {
            size = traffic.queue_close_notify(&mut alert).unwrap_or(0);
        });
        self.out.extend_from_slice(&alert[..size]);
    }

    /// What the first record that was kept lacks, or as much of it as is known.
    fn missing(&self) -> usize {
        let whole = match self.wire.get(3..HEADER) {
            None => HEADER,
            Some(size) => HEADER + usize::from(size[0]) * 256 + usize::from(size[1]),
        };
        whole.saturating_sub(self.wire.len())
    }

    fn keep(&mut self, wire: &[u8]) {
        if self.failed.is_none() && !self.ended {
            self.wire.extend_from_slice(wire);
        }
    }

    fn advance_kept(&mut self, room: &mut Room<'_>, traffic: impl FnOnce(Traffic<'_>)) {
        let mut wire = std::mem::take(&mut self.wire);
        let done = self.advance(&mut wire, room, traffic);
        if done < wire.len() && self.failed.is_none() && !self.ended {
            wire.drain(..done);
            self.wire = wire;
        }
    }

    /// Lets rustls do what it can with `wire`. Returns how much of that it needs no more.
    ///
    /// `traffic` is called at most once, and not before the handshake is over.
    fn advance(&mut self, wire: &mut [u8], room: &mut Room<'_>, traffic: impl FnOnce(Traffic<'_>)) -> usize {
        let mut done = 0;
        while self.failed.is_none() {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut wire[done..]);
            match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(Ok(record)) = records.next_record() {
                        let taken = if self.plain.is_empty() { room.put(record.payload) } else { 0 };
                        self.plain.extend_from_slice(&record.payload[taken..]);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(record)) => append(&mut self.out, record),
                Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
                Ok(ConnectionState::PeerClosed) => self.ended = true,
                Ok(ConnectionState::WriteTraffic(state)) => {
                    traffic(state);
                    return done + discard;
                }
                Ok(_) => return done + discard,
                Err(error) => {
                    self.failed = Some(cause(error));
                    self.take_alert(&mut wire[done..]);
                }
            }
            done += discard;
        }
        done
    }

    /// What rustls says of its failure. It gives that before it looks at the record again, at which it would fail anew.
    fn take_alert(&mut self, wire: &mut [u8]) {
        while self.connection.wants_write() {
            match self.connection.process_tls_records(wire).state {
                Ok(ConnectionState::EncodeTlsData(record)) => append(&mut self.out, record),
                _ => return,
            }
        }
    }

    fn give_plain(&mut self, room: &mut Room<'_>) {
        if !self.plain.is_empty() {
            self.plain_from += room.put(&self.plain[self.plain_from..]);
            if self.plain_from == self.plain.len() {
                self.plain = Vec::new();
                self.plain_from = 0;
            }
        }
    }

    fn step(&self) -> Step {
        if !self.plain.is_empty() {
            Step::Full
        } else if self.failed.is_some() {
            Step::Failed
        } else if self.ended {
            Step::Ended
        } else {
            Step::Wants
        }
    }
}

fn append(out: &mut Vec<u8>, mut record: EncodeTlsData<'_, ClientConnectionData>) {
    if let Err(EncodeError::InsufficientSize(wanted)) = record.encode(&mut []) {
        let start = out.len();
        out.resize(start + wanted.required_size, 0);
        // It has said what it needs.
        let _ = record.encode(&mut out[start..]);
    }
}

/// Where plaintext goes.
struct Room<'p> {
    plain: &'p mut [u8],
    filled: usize,
}

impl Room<'_> {
    fn none() -> Self {
        Room { plain: &mut [], filled: 0 }
    }

    fn put(&mut self, plain: &[u8]) -> usize {
        let size = plain.len().min(self.plain.len() - self.filled);
        self.plain[self.filled..self.filled + size].copy_from_slice(&plain[..size]);
        self.filled += size;
        size
    }
}
