//! The TLS of a connection: with the server, perhaps within the TLS with an https proxy.

use crate::tls::session::{overhead, Failure, Leftover, Room, Session, Step};

/// Plaintext of the proxy's session that is handed to the server's at once.
const PIECE: usize = 16 * 1024;

pub struct Stream {
    /// The TLS with the server.
    pub session: Box<dyn Session>,
    proxy: Option<Proxy>,
    /// The next `read` gives this first.
    back: Leftover,
    failure: Option<Failure>,
}

/// The TLS with a proxy, which carries that with the server.
struct Proxy {
    session: Box<dyn Session>,
    /// The server's records in the proxy's, to be sent.
    out: Vec<u8>,
}

impl Stream {
    pub fn new(session: impl Session + 'static) -> Self {
        Stream { session: Box::new(session), proxy: None, back: Leftover::default(), failure: None }
    }

    /// Makes this stream, whose handshake is done, carry that of `inner`.
    pub fn carry(&mut self, inner: Stream) {
        let session = std::mem::replace(&mut self.session, inner.session);
        self.proxy = Some(Proxy { session, out: Vec::new() });
        self.wrap();
    }

    pub fn to_send(&self) -> usize {
        match &self.proxy {
            None => self.session.to_send(),
            Some(proxy) => proxy.out.len() + proxy.session.to_send(),
        }
    }

    pub fn take(&mut self, out: &mut [u8]) -> usize {
        match &mut self.proxy {
            None => self.session.take(out),
            Some(proxy) => {
                let size = take_from(&mut proxy.out, out);
                size + proxy.session.take(&mut out[size..])
            }
        }
    }

    /// Does what `Session::read` does, through the proxy's TLS if there is one.
    pub fn read(&mut self, wire: &mut [u8], plain: &mut Room<'_>) -> Step {
        self.back.give_rest(plain);
        let step = match &self.proxy {
            None => self.session.read(wire, plain),
            Some(_) => self.read_through_proxy(wire, plain),
        };
        if !self.back.is_empty() {
            Step::Full
        } else if self.failure.is_some() {
            Step::Failed
        } else {
            step
        }
    }

    fn read_through_proxy(&mut self, wire: &mut [u8], plain: &mut Room<'_>) -> Step {
        let Some(proxy) = &mut self.proxy else { return Step::Wants };
        let (mut wire, mut records, mut step) = (wire, Vec::<u8>::new(), Step::Full);
        while step == Step::Full {
            if records.try_reserve(PIECE).is_err() {
                self.fail(Failure::no_memory());
                return Step::Failed;
            }
            let mut room = Room::new(records.spare_capacity_mut());
            step = proxy.session.read(wire, &mut room);
            let size = room.filled();
            // SAFETY: so many bytes behind the others are written.
            unsafe { records.set_len(records.len() + size) };
            wire = &mut [];
        }
        let inner = self.session.read(&mut records, plain);
        self.wrap();
        match (inner, step) {
            (Step::Wants, Step::Ended) => Step::Cut,
            (Step::Wants, _) => step,
            _ => inner,
        }
    }

    /// The next `read` gives these bytes first.
    pub fn put_back(&mut self, plain: &[u8]) {
        self.back.put_back(plain);
    }

    /// Does what `Session::write` does. Within TLS `out` needs twice the overhead.
    pub fn write(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let Some(proxy) = &mut self.proxy else { return self.session.write(plain, out) };
        let mut records = vec![0; plain.len() + overhead(plain.len())];
        let written = self.session.write(plain, &mut records);
        let written = written.and_then(|size| proxy.session.write(&records[..size], out));
        self.wrap();
        written
    }

    pub fn write_end(&mut self) {
        self.session.write_end();
        self.wrap();
        if let Some(proxy) = &mut self.proxy {
            proxy.session.write_end();
        }
    }

    pub fn failure(&self) -> Option<&Failure> {
        let proxy = || self.proxy.as_ref().and_then(|proxy| proxy.session.failure());
        self.failure.as_ref().or_else(|| self.session.failure()).or_else(proxy)
    }

    /// Notes a failure outside the sessions.
    pub fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Hands the records of the server's session to the proxy's.
    fn wrap(&mut self) {
        let Some(Proxy { session: proxy, out }) = &mut self.proxy else { return };
        let mut records = vec![0; self.session.to_send()];
        if records.is_empty() {
            return;
        }
        self.session.take(&mut records);
        let mut end = out.len();
        out.resize(end + proxy.to_send() + records.len() + overhead(records.len()), 0);
        end += proxy.take(&mut out[end..]);
        end += proxy.write(&records, &mut out[end..]).unwrap_or(0);
        out.truncate(end);
    }
}

/// Moves the first bytes, as many as fit.
pub fn take_from(bytes: &mut Vec<u8>, out: &mut [u8]) -> usize {
    if bytes.is_empty() {
        return 0;
    }
    let size = bytes.len().min(out.len());
    out[..size].copy_from_slice(&bytes[..size]);
    bytes.drain(..size);
    if bytes.is_empty() {
        *bytes = Vec::new(); // it is needed again once in a year
    }
    size
}
