//! The descriptor, and the system calls on it. Errors are errno.

use std::mem::MaybeUninit;
use std::os::raw::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::io::errno::{self, Errno};
#[cfg(all(target_os = "linux", not(miri)))]
use crate::io::time::of_timespec;

#[cfg(not(miri))]
use libc as system;
/// Miri has no sockets.
#[cfg(miri)]
#[path = "sockets_for_miri.rs"]
pub mod system;

/// A socket that one thread may close while others use it: its number is given back when the last has left.
pub struct Socket {
    fd: c_int,
    users: AtomicUsize,
    retired: AtomicBool,
}

/// A thread uses the socket.
pub struct InUse<'s>(&'s Socket);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Socket {
    pub fn new(fd: c_int) -> Self {
        // The owner counts as a user until it retires the socket.
        Socket { fd, users: AtomicUsize::new(1), retired: AtomicBool::new(false) }
    }

    /// None once the socket is retired.
    pub fn enter(&self) -> Option<InUse<'_>> {
        let more = |users| (users > 0).then_some(users + 1);
        self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        let user = InUse(self);
        (!self.retired.load(Ordering::Acquire)).then_some(user)
    }

    fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: no thread has it any more, and none can get it.
            unsafe { system::close(self.fd) };
        }
    }

    /// Ends the connection, wakes the threads that sleep on it, and closes the descriptor when all have left.
    pub fn retire(&self) {
        if !self.retired.swap(true, Ordering::AcqRel) {
            self.shutdown(libc::SHUT_RDWR);
            self.leave();
        }
    }

    /// Closes the descriptor, and says nothing to the peer: a forked child must not end its parent's connection.
    pub fn release(&self) {
        if !self.retired.swap(true, Ordering::AcqRel) {
            self.leave();
        }
    }

    pub fn shutdown(&self, how: c_int) {
        // SAFETY: a plain system call. It fails if the peer was faster, and that is as good.
        unsafe { system::shutdown(self.fd, how) };
    }

    /// A new descriptor of the same socket.
    pub fn dup(&self) -> Result<c_int, Errno> {
        // SAFETY: a plain system call.
        let fd = unsafe { libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 {
            Err(errno::last())
        } else {
            Ok(fd)
        }
    }

    /// Receives into `spare`, which is not empty, and returns how many bytes; 0 is the end of the stream.
    pub fn recv_into(&self, spare: &mut [MaybeUninit<u8>], flags: c_int) -> Result<usize, Errno> {
        debug_assert!(!spare.is_empty());
        // SAFETY: the kernel writes at most as much as there is room for.
        count(unsafe { system::recv(self.fd, spare.as_mut_ptr().cast::<c_void>(), spare.len(), flags) })
    }

    /// Does what `recv_into` does. `receipt` becomes the time when the kernel got the last packet: nanoseconds of
    /// CLOCK_REALTIME, 0 if unknown.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub fn recv_stamped(&self, spare: &mut [MaybeUninit<u8>], flags: c_int, receipt: &mut i64) -> Result<usize, Errno> {
        let mut into = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
        let mut control = [0_u64; 16];
        // SAFETY: the kernel writes into the slice, and its own data into `control`, which is aligned for that.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&mut into, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = std::mem::size_of_val(&control) as _;
            let got = libc::recvmsg(self.fd, &mut message, flags);
            if got < 0 {
                return Err(errno::last());
            }
            let mut part = libc::CMSG_FIRSTHDR(&message);
            while !part.is_null() {
                if ((*part).cmsg_level, (*part).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                    *receipt = of_timespec(&libc::CMSG_DATA(part).cast::<libc::timespec>().read_unaligned());
                }
                part = libc::CMSG_NXTHDR(&message, part);
            }
            Ok(got as usize)
        }
    }

    /// Only Linux says so.
    #[cfg(not(all(target_os = "linux", not(miri))))]
    pub fn recv_stamped(&self, spare: &mut [MaybeUninit<u8>], flags: c_int, _: &mut i64) -> Result<usize, Errno> {
        self.recv_into(spare, flags)
    }

    /// Receives into the spare capacity of `buffer`, at most `most` bytes.
    pub fn recv(&self, buffer: &mut Vec<u8>, most: usize, flags: c_int) -> Result<usize, Errno> {
        let spare = buffer.spare_capacity_mut();
        let room = spare.len().min(most);
        let got = self.recv_into(&mut spare[..room], flags)?;
        // SAFETY: the kernel has written so many bytes.
        unsafe { buffer.set_len(buffer.len() + got) };
        Ok(got)
    }

    /// Sends the bytes that the kernel takes, without sleeping.
    pub fn send(&self, data: &[u8]) -> Result<usize, Errno> {
        let flags = libc::MSG_DONTWAIT | NO_SIGNAL;
        // SAFETY: the kernel reads the slice.
        count(unsafe { system::send(self.fd, data.as_ptr().cast::<c_void>(), data.len(), flags) })
    }

    /// Asks the kernel to acknowledge received bytes at once. The kernel forgets that when it sees fit.
    pub fn acknowledge(&self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        // SAFETY: the kernel reads one int. A socket that is not TCP refuses, and has nothing to acknowledge.
        unsafe {
            let on: c_int = 1;
            let pointer = std::ptr::addr_of!(on).cast::<c_void>();
            let size = std::mem::size_of_val(&on) as libc::socklen_t;
            system::setsockopt(self.fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, pointer, size);
        }
    }

    /// Sleeps until one of `events` happens, or the connection breaks. Returns the events; 0 after the time-out.
    ///
    /// Without `events` only the time-out wakes: a thread that waits for room in the queue cannot read why the connection
    /// broke, and would ask again and again.
    pub fn poll(&self, events: i16, timeout: Option<Duration>) -> Result<i16, Errno> {
        // Rounded up: to wake too early would mean to ask again and again.
        let millis = timeout.map_or(-1, |t| t.as_nanos().div_ceil(1_000_000).min(1 << 30) as c_int);
        let mut waiting = libc::pollfd { fd: if events == 0 { -1 } else { self.fd }, events, revents: 0 };
        // SAFETY: one pollfd, as said.
        match unsafe { system::poll(&mut waiting, 1, millis) } {
            0 => Ok(0),
            1 => Ok(waiting.revents),
            _ => Err(errno::last()),
        }
    }

    /// Sets the time after which a blocking `recv` fails with EAGAIN; zero is no limit.
    pub fn set_receive_timeout(&self, timeout: Duration) {
        let value = libc::timeval {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_usec: timeout.subsec_micros() as libc::suseconds_t,
        };
        let size = std::mem::size_of_val(&value) as libc::socklen_t;
        let pointer = std::ptr::addr_of!(value).cast::<c_void>();
        // SAFETY: the kernel reads one timeval.
        unsafe { system::setsockopt(self.fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, pointer, size) };
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const NO_SIGNAL: c_int = libc::MSG_NOSIGNAL;
// Python ignores SIGPIPE everywhere, so this matters only to programs that changed that.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const NO_SIGNAL: c_int = 0;

/// The bytes that a system call has moved.
fn count(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| errno::last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::errno::would_block;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    /// The socket of a descriptor, if it is open. Other tests run meanwhile, and may get its number once it is closed.
    fn socket_of(fd: c_int) -> Option<libc::ino_t> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel writes it, unless it returns an error.
        unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init().st_ino) }
    }

    #[test]
    fn the_descriptor_outlives_its_users() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let fd = ours.into_raw_fd();
        let (socket, ours) = (Socket::new(fd), socket_of(fd));
        assert!(ours.is_some());
        let user = socket.enter().unwrap();
        socket.retire();
        socket.retire();
        assert_eq!(socket_of(fd), ours);
        assert!(socket.enter().is_none());
        drop(user);
        assert_ne!(socket_of(fd), ours);
        assert!(socket.enter().is_none());
        drop(theirs);
    }

    #[test]
    fn releasing_does_not_end_the_connection() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let other = ours.try_clone().unwrap();
        let socket = Socket::new(ours.into_raw_fd());
        socket.release();
        let other = Socket::new(other.into_raw_fd());
        assert_eq!(other.send(b"still there"), Ok(11));
        drop(theirs);
    }

    #[test]
    fn timeouts() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let socket = Socket::new(ours.into_raw_fd());
        assert_eq!(socket.poll(libc::POLLIN, Some(Duration::from_millis(1))), Ok(0));
        socket.set_receive_timeout(Duration::from_millis(1));
        let mut buffer = Vec::with_capacity(10);
        assert!(would_block(socket.recv(&mut buffer, 10, 0).unwrap_err()));
    }
}
