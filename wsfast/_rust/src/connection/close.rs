//! Closing: the handshake of RFC 6455 section 7, under one deadline, and every other way to come to an end.

use std::time::Instant;

use crate::connection::receive::Drained;
use crate::connection::Connection;
use crate::io::errno::{Errno, CUT, NO_MEMORY, TLS_FAILED};
use crate::io::lock::locked;
use crate::parts::lifecycle::{Cause, Close, Phase};
use crate::parts::receive_half::ReceiveHalf;
use crate::parts::stop::Stop;
use crate::protocol::c_core::read_close;

impl Connection {
    /// Starts the closing handshake. See wst_close().
    pub fn close(&self, close: Close) {
        let Some(_user) = self.wire.enter() else { return };
        if self.phase() == Phase::Connecting {
            self.finalize(Cause::Local);
            return;
        }
        if let Some(mut reader) = self.try_reader() {
            // The peer's CLOSE may be there already.
            self.drain(&mut reader);
        }
        if self.phase() == Phase::Open {
            self.send_close(&close, Phase::Closing);
        }
    }

    /// Fails the connection (RFC 6455 section 7.1.7), for a reason that the caller knows.
    ///
    /// The program can still receive the messages that arrived before.
    pub fn fail(&self, close: Close) {
        let mut reader = self.try_reader();
        if let Some(reader) = &mut reader {
            self.drain(reader);
            self.queue_all(reader);
        }
        self.end_reading(reader.as_deref_mut(), Cause::Local, close);
    }

    /// Fails the connection because of a message that `receive` gave to the caller. The bytes behind it are dropped.
    pub fn fail_receiving(&self, close: Close) {
        let mut reader = locked(&self.reader);
        reader.forget_received();
        self.end_reading(Some(&mut reader), Cause::Local, close);
    }

    /// Fails the connection because of the frame that was received last.
    pub(crate) fn violate(&self, reader: &mut ReceiveHalf, cause: Cause) {
        let close = cause.close();
        self.end_reading(Some(reader), cause, close);
    }

    /// Fails the connection because of the frame that `receive` is at. Frames behind it are dropped.
    pub(crate) fn refuse(&self, reader: &mut ReceiveHalf, cause: Cause) {
        reader.forget_received();
        self.violate(reader, cause);
    }

    fn end_reading(&self, reader: Option<&mut ReceiveHalf>, cause: Cause, close: Close) {
        if let Some(reader) = reader {
            reader.message.end();
        }
        if cause == Cause::Local {
            self.ending().set_cause(cause);
        } else {
            self.ending().set_violation(cause);
        }
        let Some(_user) = self.wire.enter() else { return };
        self.send_close(&close, Phase::Draining);
        self.sender.end(&self.wire);
    }

    pub(crate) fn send_close(&self, close: &Close, phase: Phase) {
        self.sender.close(&self.wire, &self.lifecycle, close, phase);
    }

    pub(crate) fn close_received(&self, payload: &[u8]) {
        let (code, reason) = read_close(payload);
        let close = Close::new(code, reason);
        self.ending().received = Some(close.clone());
        self.send_close(&close, Phase::Draining);
        self.sender.end(&self.wire);
    }

    /// Goes on with closing, and sleeps once. See wst_finish().
    pub fn finish(&self) -> Result<(), Stop> {
        let Some(_user) = self.wire.enter() else { return Ok(()) };
        self.sender.flush_quietly(&self.wire);
        let now = Instant::now();
        let mut wake = self.ending().deadline;
        let drained = match self.try_reader() {
            None => Drained::Full,
            Some(mut reader) => {
                let drained = self.drain(&mut reader);
                match self.timers(&mut reader, now) {
                    Err(_) => return Ok(()),
                    Ok(timer) => wake = timer,
                }
                drained
            }
        };
        if drained == Drained::Full && wake.is_some_and(|wake| wake <= now) {
            self.finalize(Cause::CloseTimeout);
        }
        if self.phase() == Phase::Closed {
            return Ok(());
        }
        Err(self.wait(drained, false, wake, now))
    }

    pub fn abort(&self) {
        self.finalize(Cause::Local);
    }

    /// The connection is over. Threads that sleep in it wake.
    pub fn finalize(&self, cause: Cause) {
        if self.lifecycle.end(cause) {
            self.sender.forget_backlog();
            self.wire.socket.retire();
        }
    }

    /// The connection is over, for a caller that says so.
    pub(crate) fn over(&self, cause: Cause) -> Stop {
        self.finalize(cause);
        Stop::Closed
    }

    /// Once nothing more is received, the end of the stream is in order, however it comes.
    pub(crate) fn unless_draining(&self, cause: Cause) -> Cause {
        if self.phase() == Phase::Draining {
            Cause::None
        } else {
            cause
        }
    }

    /// Reading failed.
    pub(crate) fn lost(&self, errno: Errno) -> Stop {
        if errno == NO_MEMORY || errno == CUT {
            self.finalize(Cause::NoMemory);
            return Stop::NoMemory;
        }
        let cause = match self.wire.tls() {
            Some(tls) if errno == TLS_FAILED => Cause::Tls(locked(tls).failure()),
            _ => Cause::Os(errno),
        };
        self.over(self.unless_draining(cause))
    }

    /// Writing failed. The peer's messages from before that can still be read.
    pub(crate) fn broken(&self, errno: Errno) -> Stop {
        if errno == NO_MEMORY {
            return Stop::NoMemory; // and the connection is as it was
        }
        if let Some(mut reader) = self.try_reader() {
            self.drain(&mut reader);
        }
        self.lost(errno)
    }
}
