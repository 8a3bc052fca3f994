//! The opening: the TLS handshake, and the bytes of the upgrade, which Python writes and judges.

use std::time::{Duration, Instant};

use rustls::CommonState;

use crate::connection::Connection;
use crate::io::errno::would_block;
use crate::io::lock::locked;
use crate::io::time::after;
use crate::parts::frame_writer::Sent;
use crate::parts::lifecycle::{Cause, Phase};
use crate::parts::receive_half::ReceiveHalf;
use crate::parts::stop::Stop;
use crate::tls::channel::Channel;
use crate::tls::session::Failure;

/// The longest sleep of the opening.
const PULSE: Duration = Duration::from_millis(250);

impl Connection {
    /// The TLS handshake. It may be called again after `Stop::Interrupted`. The ending has the cause of a failure.
    pub fn handshake(
        &self,
        new: impl FnOnce() -> Result<Channel, String>,
        timeout: Option<Duration>,
    ) -> Result<(), Stop> {
        let _user = self.wire.enter().ok_or(Stop::Closed)?;
        let deadline = after(timeout);
        if self.wire.tls().is_none() {
            match new() {
                Ok(tls) => self.wire.secure(tls),
                Err(reason) => return Err(self.over(Cause::Tls(Failure::new(reason)))),
            }
        }
        let tls = self.wire.tls().ok_or(Stop::Closed)?;
        let mut reader = locked(&self.reader);
        let mut slept = false;
        loop {
            let (sent, shaking) = {
                let mut tls = locked(tls);
                (tls.flush(&self.wire.socket), tls.is_handshaking())
            };
            match sent {
                Err(errno) => return Err(self.lost(errno)),
                Ok(true) if !shaking => return Ok(()),
                // As everywhere: sleep once, and then let the caller check for signals.
                Ok(_) if slept => return Err(Stop::Interrupted),
                Ok(true) => self.sleep(libc::POLLIN, deadline)?,
                Ok(false) => self.sleep(libc::POLLIN | libc::POLLOUT, deadline)?,
            }
            slept = true;
            self.read_early(&mut reader)?;
        }
    }

    /// TLS within the TLS that there is; `handshake` goes on with it.
    pub fn nest(&self, inner: Result<Channel, String>) -> Result<(), Stop> {
        let reader = locked(&self.reader);
        // Bytes behind the reply of the proxy would be the beginning of the inner TLS.
        let early = reader.buffer.unread().len();
        let nested = inner.and_then(|inner| match self.wire.tls() {
            Some(outer) if early == 0 => {
                locked(outer).carry(inner);
                Ok(())
            }
            _ => Err("the proxy sent something before TLS began".to_string()),
        });
        nested.map_err(|reason| self.over(Cause::Tls(Failure::new(reason))))
    }

    /// TLS whose handshake is done, perhaps within the TLS that there is. See wst_tls_adopt().
    pub fn adopt(&self, tls: Result<Channel, String>) -> Result<(), Stop> {
        let mut reader = locked(&self.reader);
        let adopted = tls.map_err(Failure::new).and_then(|mut tls| {
            // The bytes behind the handshake are in the session already or, if it is the inner one of two, in the buffer.
            let mut early = reader.buffer.unread().to_vec();
            reader.buffer.forget_unread();
            reader.ended |= tls.read(&mut early, &mut reader.buffer)?;
            self.wire.secure(tls);
            Ok(())
        });
        adopted.map_err(|failure| self.over(Cause::Tls(failure)))
    }

    /// Runs `body` with the parameters that rustls has agreed with the server; None if it does not encrypt.
    pub fn with_tls<T>(&self, body: impl FnOnce(&CommonState) -> T) -> Option<T> {
        locked(self.wire.tls()?).state().map(body)
    }

    /// Sends the upgrade request. After `Stop::Interrupted` it is called again, without data.
    pub fn send_raw(&self, data: &[u8], timeout: Option<Duration>) -> Result<(), Stop> {
        let _user = self.wire.enter().ok_or(Stop::Closed)?;
        let deadline = after(timeout);
        let mut slept = false;
        self.sender.write_raw(data)?;
        loop {
            match self.sender.flush(&self.wire) {
                Ok(Sent::All) => return Ok(()),
                Ok(_) if slept => return Err(Stop::Interrupted),
                Ok(_) => self.sleep(libc::POLLOUT, deadline)?,
                Err(errno) => {
                    // An alert may have come before the peer closed, and says why it did.
                    let _ = self.read(&mut locked(&self.reader), libc::MSG_DONTWAIT);
                    return Err(self.lost(errno));
                }
            }
            slept = true;
        }
    }

    /// Receives some bytes into `data`, and returns how many.
    pub fn recv_raw(&self, data: &mut [u8], timeout: Option<Duration>) -> Result<usize, Stop> {
        let _user = self.wire.enter().ok_or(Stop::Closed)?;
        let deadline = after(timeout);
        let mut reader = locked(&self.reader);
        if reader.buffer.unread().is_empty() {
            if reader.ended {
                return Err(Stop::Eof);
            }
            self.sleep(libc::POLLIN, deadline)?;
            self.read_early(&mut reader)?;
        }
        let size = reader.buffer.unread().len().min(data.len());
        if size == 0 {
            return Err(Stop::Interrupted); // half a record: call again
        }
        let place = reader.buffer.advance(size);
        data[..size].copy_from_slice(reader.buffer.at(place));
        reader.buffer.take_back();
        Ok(size)
    }

    /// Reads without sleeping, before the connection is open.
    fn read_early(&self, reader: &mut ReceiveHalf) -> Result<(), Stop> {
        match self.read(reader, libc::MSG_DONTWAIT) {
            Ok(0) if self.phase() != Phase::Closed => Err(Stop::Eof),
            Ok(0) => Err(Stop::Closed),
            Err(errno) if !would_block(errno) => Err(self.lost(errno)),
            _ => Ok(()),
        }
    }

    /// The upgrade is done; `trailing` came after it.
    pub fn open(&self, trailing: &[u8], deflate: bool) -> Result<(), Stop> {
        let mut reader = locked(&self.reader);
        if deflate {
            reader.message.inflate();
        }
        reader.buffer.prepend(trailing)?;
        reader.keepalive.start(Instant::now());
        self.lifecycle.open().then_some(()).ok_or(Stop::Closed)
    }

    /// Sleeps until one of `events`, during the opening; for a `PULSE` at the most, since a signal that comes before poll(2)
    /// sleeps does not wake it.
    fn sleep(&self, events: i16, deadline: Option<Instant>) -> Result<(), Stop> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match self.wire.socket.poll(events, Some(left.map_or(PULSE, |left| left.min(PULSE)))) {
            Ok(0) if left.is_some_and(|left| left <= PULSE) => Err(Stop::Timeout),
            Ok(0) => Err(Stop::Interrupted),
            Ok(_) => Ok(()),
            Err(libc::EINTR) => Err(Stop::Interrupted),
            Err(errno) => Err(self.lost(errno)),
        }
    }
}
