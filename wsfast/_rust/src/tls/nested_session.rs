//! TLS within TLS: with the server, through an https proxy.

use rustls::CommonState;

use crate::io::buffer::Buffer;
use crate::io::errno::Errno;
use crate::io::socket::Socket;
use crate::parts::lifecycle::Cause;
use crate::tls::session::Session;

pub struct NestedSession {
    /// With the proxy: the handshake is done.
    outer: Session,
    inner: Session,
    /// Records of the inner one, as they came out of the outer one.
    between: Buffer,
}

impl NestedSession {
    pub fn new(outer: Session, inner: Session) -> Self {
        NestedSession { outer, inner, between: Buffer::new() }
    }

    pub fn state(&self) -> Option<&CommonState> {
        self.inner.state()
    }

    pub fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    pub fn read(&mut self, wire: &[u8], plain: &mut Buffer) -> Result<bool, Cause> {
        // Before an error of the outer one there may have been something.
        let outer = self.outer.read(wire, &mut self.between);
        let size = self.between.unread().len();
        let place = self.between.advance(size);
        let inner = self.inner.read(self.between.at(place), plain);
        self.between.take_back();
        Ok(inner? || outer?)
    }

    pub fn write(&mut self, plain: &[u8]) {
        self.inner.write(plain);
    }

    pub fn write_end(&mut self) {
        self.inner.write_end();
        self.wrap();
        self.outer.write_end();
    }

    pub fn wants_write(&self) -> bool {
        self.inner.wants_write() || self.outer.wants_write()
    }

    pub fn flush(&mut self, socket: &Socket) -> Result<bool, Errno> {
        loop {
            // One piece after the other, so that what waits to be sent is bounded by what the writer gives.
            if !self.outer.flush(socket)? {
                return Ok(false);
            }
            if !self.wrap() {
                return if self.inner.wants_write() { Err(self.inner.errno()) } else { Ok(true) };
            }
        }
    }

    /// Hands records of the inner session to the outer one; false if there are none.
    fn wrap(&mut self) -> bool {
        let mut records = Vec::new();
        self.inner.take(&mut records);
        self.outer.write(&records);
        !records.is_empty()
    }
}
