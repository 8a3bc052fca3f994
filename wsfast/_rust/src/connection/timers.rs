//! Keepalive, and the other deadlines of a connection. Each thread that waits checks them before it sleeps.

use std::time::Instant;

use crate::connection::Connection;
use crate::io::errno::NO_MEMORY;
use crate::parts::frame_writer::Sent;
use crate::parts::keepalive::Due;
use crate::parts::lifecycle::{Cause, Phase};
use crate::parts::receive_half::ReceiveHalf;
use crate::parts::stop::Stop;
use crate::protocol::c_core::{mask_key, FIN, PING};

impl Connection {
    /// Sends a PING or closes the connection, if it is time. Returns when to ask again, or an error once the connection is closed.
    pub(crate) fn timers(&self, reader: &mut ReceiveHalf, now: Instant) -> Result<Option<Instant>, Stop> {
        if let Some(keepalive) = self.new_pinging.take() {
            reader.keepalive = keepalive;
            reader.keepalive.start(now);
        }
        match self.phase() {
            Phase::Closed => Err(Stop::Closed),
            Phase::Closing | Phase::Draining => {
                let deadline = self.ending().deadline;
                if deadline.is_some_and(|deadline| deadline <= now) {
                    return Err(self.over(Cause::CloseTimeout));
                }
                Ok(deadline)
            }
            _ => loop {
                match reader.keepalive.due(now) {
                    Due::Wake(wake) => return Ok(wake),
                    Due::Ping => self.keepalive_ping(reader, now),
                    Due::Overdue => {
                        // Perhaps no thread has read for a long time, so read first.
                        match self.read(reader, libc::MSG_DONTWAIT) {
                            Err(NO_MEMORY) => return Err(Stop::NoMemory),
                            Ok(size) if size > 0 => {
                                // The bytes are to be parsed before a thread sleeps.
                                return Ok(Some(now));
                            }
                            _ => {
                                self.send_close(&Cause::Keepalive.close(), Phase::Draining);
                                return Err(self.over(Cause::Keepalive));
                            }
                        }
                    }
                }
            },
        }
    }

    fn keepalive_ping(&self, reader: &mut ReceiveHalf, now: Instant) {
        reader.keepalive.pinged(now);
        let payload = mask_key().unwrap_or(0).to_ne_bytes();
        self.pings.forget_kept(); // other bytes were sign enough of life
        if self.pings.remember(&payload, self.options.report_pings, true).is_err() {
            return; // any other sign of life will do
        }
        // While other frames wait to be sent, a sign of life will do, and the peer may show one without a PING.
        if !matches!(
            self.sender.send_control(&self.wire, &self.lifecycle, FIN | PING, &payload),
            Ok(Sent::All | Sent::Blocked | Sent::Held)
        ) {
            self.pings.forget(&payload);
        }
    }
}
