//! The TLS of a connection by OpenSSL itself, for whoever passes an ssl.SSLContext.
//!
//! Python makes the SSL with that context, on BIOs in memory, and shakes hands with it: so the context is honoured by
//! definition, and its callbacks run where no lock is held. Then it leaves the SSL to us, and we hold a reference of
//! our own. From here on no Python runs, since OpenSSL has none to call: so the caller may hold locks, and not Python's.

use std::ffi::{c_int, c_void};

use crate::io::buffer::Buffer;
use crate::io::errno::{would_block, Errno, CUT};
use crate::io::socket::Socket;
use crate::parts::lifecycle::Cause;
use crate::tls::openssl::{self, OpenSsl, Pointer};

/// What is taken out of a BIO at once: a BIO keeps the size that it once had.
const PIECE: usize = 256 * 1024;

/// For what is always room to take out of a BIO, even if there is no memory.
const LEAST: usize = 512;

/// What may wait to be sent while we read: a piece of the writer's, and OpenSSL's answers. A peer that asks again and
/// again (for renegotiation, in TLS 1.2) and does not read would make us hoard answers.
const ANSWERS: usize = 3 * PIECE;

/// A record's plaintext, at most (RFC 8446 section 5.1).
const RECORD: usize = 16 * 1024;

const SSL_ERROR_WANT_READ: c_int = 2;
const SSL_ERROR_ZERO_RETURN: c_int = 6;
const SSL_OP_NO_RENEGOTIATION: u64 = 1 << 30;

pub struct OpenSslSession {
    openssl: &'static OpenSsl,
    ssl: Pointer,
    /// Records on their way to the kernel.
    wire: Vec<u8>,
    sent: usize,
    failed: bool,
    /// What `flush` tells once it has failed.
    pub errno: Errno,
}

// SAFETY: an SSL may be used by any thread, one at a time, and a session is behind a lock.
unsafe impl Send for OpenSslSession {}

impl OpenSslSession {
    /// # Safety
    /// `ssl` is an SSL that nobody else uses from now on, or no SSL at all but then not made with `context`.
    pub unsafe fn new(ssl: Pointer, context: Pointer) -> Result<Self, String> {
        let openssl = openssl::loaded().ok_or("OpenSSL is not loaded")?;
        openssl.check(ssl, context)?;
        if (openssl.SSL_is_init_finished)(ssl) != 1 {
            return Err("the TLS handshake is not done".to_string());
        }
        // As rustls: while a handshake is under way nothing can be sent.
        (openssl.SSL_set_options)(ssl, SSL_OP_NO_RENEGOTIATION);
        let mut wire = Vec::new();
        wire.try_reserve_exact(LEAST).map_err(|_| "out of memory")?;
        if (openssl.SSL_up_ref)(ssl) != 1 {
            return Err("the TLS of this connection cannot be kept".to_string());
        }
        Ok(OpenSslSession { openssl, ssl, wire, sent: 0, failed: false, errno: libc::EIO })
    }

    pub fn read(&mut self, mut wire: &[u8], plain: &mut Buffer) -> Result<bool, Cause> {
        // SAFETY: the session owns the SSL for as long as it lives; slices are as long as they say.
        unsafe {
            (self.openssl.ERR_clear_error)();
            let bio = (self.openssl.SSL_get_rbio)(self.ssl);
            while !wire.is_empty() {
                let size = wire.len().min(c_int::MAX as usize);
                if (self.openssl.BIO_write)(bio, wire.as_ptr().cast(), size as c_int) != size as c_int {
                    return Err(self.error());
                }
                wire = &wire[size..];
            }
            loop {
                plain.reserve(RECORD).map_err(|_| Cause::Tls("out of memory".to_string()))?;
                let spare = plain.spare();
                let mut size = 0;
                let read = (self.openssl.SSL_read_ex)(self.ssl, spare.as_mut_ptr().cast(), spare.len(), &mut size);
                if read == 1 {
                    plain.filled(size);
                    continue;
                }
                if self.pending() > ANSWERS {
                    self.failed = true;
                    return Err(Cause::Tls("too many answers wait to be sent".to_string()));
                }
                return match (self.openssl.SSL_get_error)(self.ssl, read) {
                    SSL_ERROR_WANT_READ => Ok(false),
                    SSL_ERROR_ZERO_RETURN => Ok(true),
                    _ => Err(self.error()),
                };
            }
        }
    }

    /// What the writer gives, a piece at a time, is encrypted at once. If that fails, `flush` tells.
    pub fn write(&mut self, plain: &[u8]) {
        self.encrypt(plain);
    }

    pub fn write_end(&mut self) {
        if !self.failed {
            // SAFETY: as in `read`. It only says that nothing follows from us.
            unsafe { (self.openssl.SSL_shutdown)(self.ssl) };
            self.openssl.take_error();
        }
    }

    pub fn wants_write(&self) -> bool {
        self.failed || self.sent < self.wire.len() || self.pending() > 0
    }

    pub fn flush(&mut self, socket: &Socket) -> Result<bool, Errno> {
        loop {
            while self.sent < self.wire.len() {
                match socket.send(&self.wire[self.sent..]) {
                    Ok(size) => self.sent += size,
                    Err(libc::EINTR) => {}
                    Err(errno) if would_block(errno) => return Ok(false),
                    Err(errno) => return Err(errno),
                }
            }
            if !self.take_records() {
                return if self.failed { Err(self.errno) } else { Ok(true) };
            }
        }
    }

    pub fn take(&mut self, records: &mut Vec<u8>) {
        while self.sent < self.wire.len() || self.take_records() {
            records.extend_from_slice(&self.wire[self.sent..]);
            self.sent = self.wire.len();
        }
    }

    /// Records that OpenSSL has made.
    fn pending(&self) -> usize {
        // SAFETY: as in `read`.
        unsafe { (self.openssl.BIO_ctrl_pending)((self.openssl.SSL_get_wbio)(self.ssl)) }
    }

    /// Takes some of them; false if there are none.
    fn take_records(&mut self) -> bool {
        self.wire.clear();
        self.sent = 0;
        let mut size = self.pending().min(PIECE);
        if self.wire.try_reserve(size).is_err() {
            size = size.min(self.wire.capacity());
        }
        // SAFETY: as in `read`; so many bytes were made room for.
        unsafe {
            let bio = (self.openssl.SSL_get_wbio)(self.ssl);
            let taken = (self.openssl.BIO_read)(bio, self.wire.as_mut_ptr().cast(), size as c_int);
            self.wire.set_len(usize::try_from(taken).unwrap_or(0));
        }
        !self.wire.is_empty()
    }

    fn encrypt(&mut self, plain: &[u8]) {
        if plain.is_empty() || self.failed {
            return;
        }
        let mut size = 0;
        // SAFETY: as in `read`. A BIO in memory takes all, or there is no memory.
        unsafe {
            (self.openssl.ERR_clear_error)();
            let data = plain.as_ptr().cast::<c_void>();
            self.failed = (self.openssl.SSL_write_ex)(self.ssl, data, plain.len(), &mut size) != 1;
        }
        self.failed |= size != plain.len();
        let reason = self.openssl.take_error();
        if self.failed {
            self.errno = errno_of(reason.as_deref());
        }
    }

    fn error(&mut self) -> Cause {
        self.failed = true;
        Cause::Tls(self.openssl.take_error().unwrap_or_else(|| "TLS failed without a reason".to_string()))
    }
}

impl Drop for OpenSslSession {
    fn drop(&mut self) {
        // SAFETY: the session holds a reference. Python may have dropped its own: then the BIOs in memory go, too.
        unsafe { (self.openssl.SSL_free)(self.ssl) };
    }
}

/// Why nothing could be encrypted. It goes to a BIO in memory, which grows, and says nothing if it cannot.
fn errno_of(reason: Option<&str>) -> Errno {
    match reason {
        None | Some("malloc failure" | "BUF lib") => CUT,
        Some(_) => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_memory_is_told_from_other_failures() {
        assert_eq!(errno_of(Some("malloc failure")), CUT);
        assert_eq!(errno_of(None), CUT);
        assert_eq!(errno_of(Some("protocol is shutdown")), libc::EIO);
    }
}
