//! TLS for a caller with a socket of its own: with the server, perhaps within that of an https proxy.

use crate::parts::lifecycle::Cause;
use crate::tls::stream_session::{overhead, Step, StreamSession};
use crate::tls::tickets::Client;

/// Plaintext of the outer session that is handed to the inner one at once.
const PIECE: usize = 16 * 1024;

pub struct Stream {
    /// With the server.
    pub session: StreamSession,
    /// With the proxy. It gets the records of `session` at once.
    outer: Option<Box<StreamSession>>,
}

impl Stream {
    pub fn new(client: &Client, name: &str, port: u16) -> Result<Self, String> {
        Ok(Stream { session: StreamSession::new(client, name, port)?, outer: None })
    }

    /// Makes `outer`, whose handshake is done, carry this one.
    pub fn nest(&mut self, outer: StreamSession) {
        self.outer = Some(Box::new(outer));
        self.wrap();
    }

    pub fn to_send(&self) -> usize {
        self.outer.as_ref().map_or(self.session.to_send(), |outer| outer.to_send())
    }

    pub fn take(&mut self, out: &mut [u8]) -> usize {
        match &mut self.outer {
            None => self.session.take(out),
            Some(outer) => outer.take(out),
        }
    }

    pub fn read(&mut self, wire: &mut [u8], plain: &mut [u8]) -> (usize, Step) {
        let Some(outer) = &mut self.outer else { return self.session.read(wire, plain) };
        let mut records = Vec::new();
        let mut step = Step::Full;
        let mut rest = Some(wire);
        while step == Step::Full {
            let start = records.len();
            records.resize(start + PIECE, 0);
            let size;
            (size, step) = outer.read(rest.take().unwrap_or_default(), &mut records[start..]);
            records.truncate(start + size);
        }
        let (filled, inner) = self.session.read(&mut records, plain);
        self.wrap();
        match (inner, step) {
            (Step::Wants, Step::Ended) => (filled, Step::Cut),
            (Step::Wants, _) => (filled, step),
            _ => (filled, inner),
        }
    }

    pub fn write(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let Some(outer) = &mut self.outer else { return self.session.write(plain, out) };
        let mut records = vec![0; plain.len() + overhead(plain.len())];
        let written = self.session.write(plain, &mut records).and_then(|size| outer.write(&records[..size], out));
        self.wrap();
        written
    }

    pub fn write_end(&mut self) {
        self.session.write_end();
        self.wrap();
        if let Some(outer) = &mut self.outer {
            outer.write_end();
        }
    }

    pub fn failed(&self) -> Option<&Cause> {
        self.session.failed.as_ref().or(self.outer.as_ref().and_then(|outer| outer.failed.as_ref()))
    }

    /// Hands the records of the inner session to the outer one.
    fn wrap(&mut self) {
        if let Some(outer) = &mut self.outer {
            let mut records = vec![0; self.session.to_send()];
            self.session.take(&mut records);
            outer.queue(&records);
        }
    }
}
