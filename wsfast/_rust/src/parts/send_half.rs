//! The writing half behind its lock. Without the lock a thread may only ask whether there is a backlog: bytes that the
//! kernel did not take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::io::block::NoMemory;
use crate::io::errno::Errno;
use crate::io::lock::locked;
use crate::parts::frame_writer::{FrameWriter, Sent};
use crate::parts::lifecycle::{Close, Lifecycle, Phase};
use crate::parts::stop::Stop;
use crate::parts::wire::Wire;
use crate::protocol::c_core::{BINARY, CLOSE, CONTROL, FIN, OPCODE, TEXT};

pub struct SendHalf {
    writer: Mutex<FrameWriter>,
    has_backlog: AtomicBool,
}

impl SendHalf {
    pub fn new() -> Self {
        SendHalf { writer: Mutex::new(FrameWriter::new()), has_backlog: AtomicBool::new(false) }
    }

    pub fn has_backlog(&self) -> bool {
        self.has_backlog.load(Ordering::Acquire)
    }

    /// No thread waits any more for bytes that were not sent.
    pub fn forget_backlog(&self) {
        self.has_backlog.store(false, Ordering::Release);
    }

    /// Notes the result of a write whose caller cannot report a failure. The reading half reports it, after its messages.
    fn settle(&self, sent: &Result<Sent, Errno>) {
        self.has_backlog.store(*sent == Ok(Sent::Blocked), Ordering::Release);
    }

    /// Sends a frame of the program's. The outer error is the program's, the inner one the socket's.
    pub fn send(
        &self,
        wire: &Wire,
        lifecycle: &Lifecycle,
        head: u8,
        payload: &[u8],
    ) -> Result<Result<Sent, Errno>, Stop> {
        let mut writer = locked(&self.writer);
        if lifecycle.phase() != Phase::Open {
            return Err(Stop::Closed);
        }
        // The frames of a message may have control frames between them, and nothing else (section 5.4).
        let opcode = head & OPCODE;
        if writer.in_message && (opcode == TEXT || opcode == BINARY) {
            return Err(Stop::Busy);
        }
        let sent = self.write_frame(&mut writer, wire, head, payload);
        if opcode & CONTROL == 0 && sent != Ok(Sent::Full) {
            writer.in_message = head & FIN == 0;
        }
        Ok(sent)
    }

    /// Sends a frame of wsfast's own, unless others wait before it or CLOSE was sent.
    pub fn send_control(&self, wire: &Wire, lifecycle: &Lifecycle, head: u8, payload: &[u8]) -> Result<Sent, Errno> {
        let mut writer = locked(&self.writer);
        if lifecycle.phase() != Phase::Open {
            return Ok(Sent::Full);
        }
        self.write_frame(&mut writer, wire, head, payload)
    }

    fn write_frame(&self, writer: &mut FrameWriter, wire: &Wire, head: u8, payload: &[u8]) -> Result<Sent, Errno> {
        if self.has_backlog() && !writer.holds_back() && self.flush_writer(writer, wire)? == Sent::Blocked {
            return Ok(Sent::Full);
        }
        let sent = writer.write_frame(wire, head, payload)?;
        if sent != Sent::All {
            self.has_backlog.store(true, Ordering::Release);
        }
        Ok(sent)
    }

    /// Holds data frames back, so that they leave together, or lets them go.
    pub fn cork(&self, wire: &Wire, corked: bool) -> Result<Sent, Errno> {
        let mut writer = locked(&self.writer);
        if corked {
            writer.corks += 1;
            return Ok(Sent::All);
        }
        writer.corks -= 1;
        let Some(_user) = wire.enter() else { return Ok(Sent::All) };
        if writer.corks > 0 || writer.is_idle(wire) {
            return Ok(Sent::All);
        }
        writer.writes += 1;
        self.flush_writer(&mut writer, wire)
    }

    /// The writer, for its counts.
    pub fn writer(&self) -> MutexGuard<'_, FrameWriter> {
        locked(&self.writer)
    }

    fn flush_writer(&self, writer: &mut FrameWriter, wire: &Wire) -> Result<Sent, Errno> {
        let sent = writer.flush(wire)?;
        self.has_backlog.store(sent == Sent::Blocked, Ordering::Release);
        Ok(sent)
    }

    /// Sends the bytes that wait.
    pub fn flush(&self, wire: &Wire) -> Result<Sent, Errno> {
        self.flush_writer(&mut locked(&self.writer), wire)
    }

    /// Does what `flush` does, for a caller that cannot report a failure.
    pub fn flush_quietly(&self, wire: &Wire) {
        let Some(_user) = wire.enter() else { return };
        let mut writer = locked(&self.writer);
        self.settle(&writer.flush(wire));
    }

    /// Answers a PING, unless CLOSE was sent.
    pub fn answer(&self, wire: &Wire, lifecycle: &Lifecycle, payload: &[u8]) {
        let Some(_user) = wire.enter() else { return };
        let mut writer = locked(&self.writer);
        if lifecycle.phase() == Phase::Open {
            self.settle(&writer.pong(wire, payload));
        }
    }

    /// Sends CLOSE, unless one was sent, and goes on to `phase`. No frame follows it.
    pub fn close(&self, wire: &Wire, lifecycle: &Lifecycle, close: &Close, phase: Phase) {
        let Some(_user) = wire.enter() else { return };
        let mut writer = locked(&self.writer);
        if lifecycle.begin(close, phase) {
            writer.forget_pong();
            self.settle(&writer.write_frame(wire, FIN | CLOSE, &close.payload()));
        }
    }

    /// Ends this direction: nothing follows our CLOSE.
    pub fn end(&self, wire: &Wire) {
        let Some(_user) = wire.enter() else { return };
        let mut writer = locked(&self.writer);
        writer.end();
        self.settle(&writer.flush(wire));
    }

    /// Queues bytes that are no frame: the upgrade request.
    pub fn write_raw(&self, data: &[u8]) -> Result<(), NoMemory> {
        locked(&self.writer).write_raw(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::c_core::PING;
    use std::io::Read;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn nothing_of_our_own_follows_close() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (wire, sender, lifecycle) = (Wire::new(ours.into_raw_fd()), SendHalf::new(), Lifecycle::new(None));
        assert!(lifecycle.open());
        assert_eq!(sender.send_control(&wire, &lifecycle, FIN | PING, b"1"), Ok(Sent::All));
        sender.close(&wire, &lifecycle, &Close::new(1005, b""), Phase::Closing);
        assert_eq!(sender.send_control(&wire, &lifecycle, FIN | PING, b"2"), Ok(Sent::Full));
        sender.answer(&wire, &lifecycle, b"3");
        sender.end(&wire);
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), 7 + 6, "a PING with one byte, and an empty CLOSE");
        assert_eq!((got[0], got[7]), (FIN | PING, FIN | CLOSE));
    }

    #[test]
    fn an_answer_that_waits_does_not_follow_close_and_is_not_logged() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (wire, sender, lifecycle) = (Wire::new(ours.into_raw_fd()), SendHalf::new(), Lifecycle::new(None));
        assert!(lifecycle.open());
        wire.log.start();
        let payload = vec![1; 1 << 20];
        assert!(matches!(sender.send(&wire, &lifecycle, FIN | BINARY, &payload), Ok(Ok(Sent::Blocked))));
        sender.answer(&wire, &lifecycle, b"owed");
        sender.close(&wire, &lifecycle, &Close::new(1005, b""), Phase::Closing);
        sender.end(&wire);
        let (mut got, mut piece) = (Vec::new(), [0; 1 << 16]);
        while sender.has_backlog() {
            let size = theirs.read(&mut piece).unwrap();
            got.extend_from_slice(&piece[..size]);
            sender.flush_quietly(&wire);
        }
        theirs.read_to_end(&mut got).unwrap();
        assert_eq!(got[got.len() - 6], FIN | CLOSE);
        assert!(wire.log.take().is_some_and(|frame| frame.sent && frame.head == FIN | CLOSE));
        assert!(wire.log.take().is_none());
    }
}
