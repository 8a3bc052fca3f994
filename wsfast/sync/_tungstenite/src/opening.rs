//! The opening: the TLS handshake, and the bytes of the upgrade, which Python writes and judges.

use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::connection::{Connection, Stop};
use crate::ending::{Cause, Phase};
use crate::locked;
use crate::socket::would_block;
use crate::tls::Session;

impl Connection {
    /// The TLS handshake; may be called again after `Stop::Interrupted`. A failure is told by the ending.
    pub fn handshake(
        &self,
        new: impl FnOnce() -> Result<Session, String>,
        timeout: Option<Duration>,
    ) -> Result<(), Stop> {
        let _user = self.socket.enter().ok_or(Stop::Closed)?;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        if self.session.get().is_none() {
            match new() {
                Ok(session) => {
                    let _ = self.session.set(Mutex::new(session));
                }
                Err(reason) => {
                    self.finalize(Cause::Tls(reason));
                    return Err(Stop::Closed);
                }
            }
        }
        let session = self.session.get().ok_or(Stop::Closed)?;
        let mut reader = locked(&self.reader);
        let mut slept = false;
        loop {
            let (sent, shaking) = {
                let mut session = locked(session);
                (session.flush(&self.socket), session.is_handshaking())
            };
            match sent {
                Err(errno) => return Err(self.lost(errno)),
                Ok(true) if !shaking => return Ok(()),
                // As everywhere: sleep once, and then let the caller look for signals.
                Ok(_) if slept => return Err(Stop::Interrupted),
                Ok(true) => self.sleep(libc::POLLIN, deadline)?,
                Ok(false) => self.sleep(libc::POLLIN | libc::POLLOUT, deadline)?,
            }
            slept = true;
            match self.read(&mut reader, libc::MSG_DONTWAIT) {
                Ok(0) if self.phase() != Phase::Closed => return Err(Stop::Eof),
                Ok(0) => return Err(Stop::Closed),
                Err(errno) if !would_block(errno) => return Err(self.lost(errno)),
                _ => {}
            }
        }
    }

    /// TLS whose handshake is done. See wst_tls_adopt().
    pub fn adopt(&self, session: Result<Session, String>) -> Result<(), Stop> {
        let mut reader = locked(&self.reader);
        let adopted = session.map_err(Cause::Tls).and_then(|mut session| {
            // What came behind the handshake is in it already.
            reader.ended = session.read(&[], &mut reader.data)?;
            let _ = self.session.set(Mutex::new(session));
            Ok(())
        });
        adopted.map_err(|cause| {
            self.finalize(cause);
            Stop::Closed
        })
    }

    pub fn send_raw(&self, data: &[u8], timeout: Option<Duration>) -> Result<(), Stop> {
        let _user = self.socket.enter().ok_or(Stop::Closed)?;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut rest = data;
        if let Some(session) = self.session() {
            let mut session = locked(session);
            session.write(data);
            rest = &[];
        }
        loop {
            let sent = match self.session() {
                Some(session) => locked(session).flush(&self.socket).map(|_| 0),
                None => self.socket.send(rest),
            };
            match sent {
                Ok(size) => rest = &rest[size..],
                Err(errno) if would_block(errno) => {}
                Err(errno) => {
                    // An alert may have come before the peer closed, and says why it did.
                    let _ = self.read(&mut locked(&self.reader), libc::MSG_DONTWAIT);
                    return Err(self.lost(errno));
                }
            }
            if rest.is_empty() && !self.session().is_some_and(|s| locked(s).wants_write()) {
                return Ok(());
            }
            loop {
                match self.sleep(libc::POLLOUT, deadline) {
                    // A request of a few hundred bytes: not worth to be interrupted in.
                    Err(Stop::Interrupted) => continue,
                    slept => break slept?,
                }
            }
        }
    }

    /// Receives some bytes into `data`, and returns how many.
    pub fn recv_raw(&self, data: &mut [u8], timeout: Option<Duration>) -> Result<usize, Stop> {
        let _user = self.socket.enter().ok_or(Stop::Closed)?;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut reader = locked(&self.reader);
        if reader.unread().is_empty() {
            if reader.ended {
                return Err(Stop::Eof);
            }
            self.sleep(libc::POLLIN, deadline)?;
            reader.make_room(1);
            match self.read(&mut reader, libc::MSG_DONTWAIT) {
                Ok(0) if self.phase() != Phase::Closed => return Err(Stop::Eof),
                Ok(0) => return Err(Stop::Closed),
                Err(errno) if !would_block(errno) => return Err(self.lost(errno)),
                _ => {}
            }
        }
        let size = reader.unread().len().min(data.len());
        if size == 0 {
            return Err(Stop::Interrupted); // half a record: call again
        }
        data[..size].copy_from_slice(&reader.unread()[..size]);
        reader.start += size;
        Ok(size)
    }

    /// The upgrade is done; `trailing` came after it.
    pub fn open(&self, trailing: &[u8], deflate: bool) -> Result<(), Stop> {
        let mut reader = locked(&self.reader);
        reader.deflate = deflate;
        let unread = [trailing, reader.unread()].concat();
        reader.data = unread;
        reader.start = 0;
        reader.keepalive.start(Instant::now());
        let opened = self.phase.compare_exchange(
            Phase::Connecting as u8,
            Phase::Open as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        opened.map(|_| ()).map_err(|_| Stop::Closed)
    }

    /// Sleeps until one of `events`, during the opening.
    pub(crate) fn sleep(&self, events: i16, deadline: Option<Instant>) -> Result<(), Stop> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match self.socket.poll(events, left) {
            Ok(0) => Err(Stop::Timeout),
            Ok(_) => Ok(()),
            Err(libc::EINTR) => Err(Stop::Interrupted),
            Err(errno) => Err(self.lost(errno)),
        }
    }
}
