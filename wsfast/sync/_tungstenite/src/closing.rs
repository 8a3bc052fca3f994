//! Closing: the handshake of RFC 6455 section 7, under one deadline, and every other way to come to an end.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::connection::{Connection, Stop};
use crate::ending::{Cause, Close, Phase};
use crate::frame;
use crate::locked;
use crate::reader::Reader;
use crate::socket::{Errno, CUT, NO_MEMORY};
use crate::writer::Sent;

impl Connection {
    /// Starts the closing handshake. See wst_close().
    pub fn close(&self, close: Close) {
        let Some(_user) = self.socket.enter() else { return };
        if self.phase() == Phase::Connecting {
            self.finalize(Cause::Local);
            return;
        }
        if let Some(mut reader) = self.try_reader() {
            // The peer's CLOSE may be there already.
            self.drain(&mut reader);
        }
        if self.phase() == Phase::Open {
            self.close_sent(close, Phase::Closing);
        }
    }

    /// Fails the connection (RFC 6455 section 7.1.7), for a reason that the caller knows.
    ///
    /// What arrived before can be received.
    pub fn fail(&self, close: Close) {
        let mut reader = self.try_reader();
        if let Some(reader) = &mut reader {
            self.queue_all(reader);
        }
        self.end_reading(reader.as_deref_mut(), Cause::Local, close);
    }

    /// As `fail`, because of what `receive` gave to the caller: what came behind that has no meaning.
    pub fn fail_receiving(&self, close: Close) {
        let mut reader = locked(&self.reader);
        reader.forget_received();
        self.end_reading(Some(&mut reader), Cause::Local, close);
    }

    /// Fails the connection because of the frame that was received last.
    pub(crate) fn violate(&self, reader: &mut Reader, cause: Cause) {
        let (code, reason) = cause.close();
        self.end_reading(Some(reader), cause, Close::new(code, reason.as_bytes()));
    }

    /// As `violate`, because of the frame that `receive` is at: others may have been received behind it.
    pub(crate) fn refuse(&self, reader: &mut Reader, cause: Cause) {
        reader.forget_received();
        self.violate(reader, cause);
    }

    fn end_reading(&self, reader: Option<&mut Reader>, cause: Cause, close: Close) {
        if let Some(reader) = reader {
            reader.discard = true;
        }
        if cause == Cause::Local {
            self.ending().set_cause(cause);
        } else {
            self.ending().set_violation(cause);
        }
        let Some(_user) = self.socket.enter() else { return };
        self.close_sent(close, Phase::Draining);
        self.end_writing();
    }

    /// Sends CLOSE, unless one was sent, and goes on to `phase`.
    pub(crate) fn close_sent(&self, close: Close, phase: Phase) {
        let Some(_user) = self.socket.enter() else { return };
        let mut writer = locked(&self.writer);
        {
            let mut ending = self.ending();
            if self.phase() >= phase {
                return;
            }
            ending.begin(*locked(&self.close_timeout));
            self.phase.store(phase as u8, Ordering::Release);
            if ending.sent.is_some() {
                return;
            }
            ending.received_then_sent = ending.received.is_some();
            ending.sent = Some(close.clone());
        }
        let sent = writer.put(&self.socket, self.session(), frame::FIN | frame::CLOSE, &close.payload());
        self.residue.store(sent == Ok(Sent::Blocked), Ordering::Release);
    }

    pub(crate) fn close_received(&self, reader: &mut Reader, payload: &[u8]) {
        match frame::parse_close(payload) {
            Err(cause) => self.violate(reader, cause),
            Ok((code, reason)) => {
                let close = Close::new(code, reason);
                reader.discard = true;
                self.ending().received = Some(close.clone());
                self.close_sent(close, Phase::Draining);
                self.end_writing();
            }
        }
    }

    /// Nothing follows our CLOSE.
    pub(crate) fn end_writing(&self) {
        let Some(_user) = self.socket.enter() else { return };
        let mut writer = locked(&self.writer);
        writer.end();
        let sent = writer.flush(&self.socket, self.session());
        self.residue.store(sent == Ok(Sent::Blocked), Ordering::Release);
    }

    /// Goes on with closing, and sleeps once. See wst_finish().
    pub fn finish(&self) -> Result<(), Stop> {
        let Some(_user) = self.socket.enter() else { return Ok(()) };
        self.flush_quietly();
        let now = Instant::now();
        let mut wake = self.ending().deadline;
        let reads = match self.try_reader() {
            None => false,
            Some(mut reader) => {
                let room = self.drain(&mut reader);
                match self.timers(&mut reader, now) {
                    Err(_) => return Ok(()),
                    Ok(timer) => wake = timer,
                }
                room
            }
        };
        if !reads && wake.is_some_and(|wake| wake <= now) {
            self.finalize(Cause::CloseTimeout);
        }
        if self.phase() == Phase::Closed {
            return Ok(());
        }
        Err(self.wait(reads, false, wake, now))
    }

    pub fn abort(&self) {
        self.finalize(Cause::Local);
    }

    /// The connection is over, and whoever sleeps in it wakes.
    pub fn finalize(&self, cause: Cause) {
        {
            let mut ending = self.ending();
            if self.phase() == Phase::Closed {
                return;
            }
            ending.set_cause(cause);
            self.phase.store(Phase::Closed as u8, Ordering::Release);
        }
        self.residue.store(false, Ordering::Release);
        self.socket.retire();
    }

    pub(crate) fn end_of_stream(&self, reader: &mut Reader) {
        reader.ended = true;
        self.finalize(if self.phase() == Phase::Draining { Cause::None } else { Cause::Eof });
    }

    /// Reading failed.
    pub(crate) fn lost(&self, errno: Errno) -> Stop {
        if errno == NO_MEMORY || errno == CUT {
            self.finalize(Cause::NoMemory);
            return Stop::NoMemory;
        }
        self.finalize(if self.phase() == Phase::Draining { Cause::None } else { Cause::Os(errno) });
        Stop::Closed
    }

    /// Writing failed. What the peer said before that is still there.
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
