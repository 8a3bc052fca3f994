//! The cause of a failed system call: an errno, or a number of this crate's own, which is below zero.

use std::os::raw::c_int;

pub type Errno = c_int;

/// There is no memory in this process, and nothing has changed.
pub const NO_MEMORY: Errno = -1;
/// There is no memory for the rest of a frame, of which a part is sent. Nothing can follow that.
pub const CUT: Errno = -2;
/// TLS has failed, and its session has the reason. Nothing can follow that either.
pub const TLS_FAILED: Errno = -3;

pub fn would_block(errno: Errno) -> bool {
    errno == libc::EAGAIN || errno == libc::EWOULDBLOCK
}

/// The errno of this thread's last call.
pub fn last() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
