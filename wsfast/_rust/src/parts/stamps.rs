//! The times at which messages arrived: in this process, and in the kernel. None is taken unless the program asked for it.

use crate::io::time::nanoseconds;
use crate::protocol::c_core::next_is_whole;

/// The times of reads that are noted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stamping {
    Nothing,
    /// When each returned.
    Returns,
    /// And when the kernel got its bytes, from a TCP socket that was asked for that.
    Receipts,
}

/// The times when a read returned, and when the kernel got its last packet: nanoseconds of CLOCK_MONOTONIC, 0 if unknown.
/// A frame has the stamp of the read that completed it; `last` is true if no other whole frame was behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stamp {
    pub returned: i64,
    pub received: i64,
    pub last: bool,
}

impl Stamp {
    /// The stamp of a read that returns now. `receipt` is the kernel's time, of CLOCK_REALTIME; 0 if it gave none.
    pub fn now(receipt: i64) -> Self {
        let returned = nanoseconds(libc::CLOCK_MONOTONIC);
        let received = if receipt == 0 { 0 } else { returned - (nanoseconds(libc::CLOCK_REALTIME) - receipt) };
        Stamp { returned, received, last: false }
    }

    /// The stamp of a frame that this read completed. `behind` are the bytes behind the frame.
    pub fn of_frame(self, behind: &[u8]) -> Self {
        if self.returned == 0 {
            return self;
        }
        Stamp { last: !next_is_whole(behind), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_stamp_of_its_read() {
        assert_eq!(Stamp::default().of_frame(b"\x82\x00"), Stamp::default());
        let read = Stamp::now(nanoseconds(libc::CLOCK_REALTIME));
        assert!(read.received <= read.returned && read.returned - read.received < 1_000_000_000);
        assert_eq!(Stamp::now(0).received, 0);
        for (behind, last) in [(&b""[..], true), (b"\x82\x01", true), (b"\x82\x00", false), (b"\x82\x01x\x82", false)] {
            assert_eq!(read.of_frame(behind), Stamp { last, ..read });
        }
    }
}
