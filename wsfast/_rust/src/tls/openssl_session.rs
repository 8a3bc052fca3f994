//! TLS by OpenSSL itself, for a program that passes an ssl.SSLContext.
//!
//! Python makes the SSL with that context, on BIOs in memory, and shakes hands with it: so the context is honoured by
//! definition, and its callbacks run where no lock is held. Then it leaves the SSL to us, and we hold a reference of
//! our own. From here on no Python runs, since OpenSSL has none to call.

use std::ffi::c_int;

use rustls::CommonState;

use crate::tls::openssl::{self, OpenSsl, Pointer};
use crate::tls::session::{Failure, Room, Session, Step};

/// The records that may wait to be sent while we read: a piece of the writer's, and OpenSSL's answers. A peer that asks again
/// and again (for renegotiation, in TLS 1.2) and does not read would make us hoard answers.
const ANSWERS: usize = 768 * 1024;

const SSL_ERROR_WANT_READ: c_int = 2;
const SSL_ERROR_ZERO_RETURN: c_int = 6;
const SSL_OP_NO_RENEGOTIATION: u64 = 1 << 30;

pub struct OpenSslSession {
    openssl: &'static OpenSsl,
    ssl: Pointer,
    failure: Option<Failure>,
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
        if (openssl.SSL_up_ref)(ssl) != 1 {
            return Err("the TLS of this connection cannot be kept".to_string());
        }
        Ok(OpenSslSession { openssl, ssl, failure: None })
    }

    /// Gives received records to OpenSSL. False if that failed.
    fn feed(&mut self, mut wire: &[u8]) -> bool {
        // SAFETY: the session owns the SSL for as long as it lives; slices are as long as they say.
        unsafe {
            let bio = (self.openssl.SSL_get_rbio)(self.ssl);
            while !wire.is_empty() {
                let size = wire.len().min(c_int::MAX as usize);
                if (self.openssl.BIO_write)(bio, wire.as_ptr().cast(), size as c_int) != size as c_int {
                    return false;
                }
                wire = &wire[size..];
            }
        }
        true
    }

    fn fail(&mut self) -> Step {
        let reason = self.openssl.take_error();
        self.failure = Some(Failure::new(reason.unwrap_or_else(|| "TLS failed without a reason".to_string())));
        Step::Failed
    }
}

impl Session for OpenSslSession {
    fn state(&self) -> Option<&CommonState> {
        None
    }

    fn is_handshaking(&self) -> bool {
        false
    }

    fn read(&mut self, wire: &mut [u8], plain: &mut Room<'_>) -> Step {
        // SAFETY: as in `feed`.
        unsafe { (self.openssl.ERR_clear_error)() };
        if self.failure.is_some() {
            return Step::Failed;
        }
        if !self.feed(wire) {
            return self.fail();
        }
        loop {
            let free = plain.free();
            if free.is_empty() {
                return Step::Full;
            }
            let mut size = 0;
            // SAFETY: as in `feed`; OpenSSL writes as many bytes as it says.
            let read = unsafe {
                let read = (self.openssl.SSL_read_ex)(self.ssl, free.as_mut_ptr().cast(), free.len(), &mut size);
                plain.advance(size);
                read
            };
            if read == 1 {
                continue;
            }
            if self.to_send() > ANSWERS {
                self.failure = Some(Failure::new("too many answers wait to be sent"));
                return Step::Failed;
            }
            // SAFETY: as in `feed`.
            return match unsafe { (self.openssl.SSL_get_error)(self.ssl, read) } {
                SSL_ERROR_WANT_READ => Step::Wants,
                SSL_ERROR_ZERO_RETURN => Step::Ended,
                _ => self.fail(),
            };
        }
    }

    fn write(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        if self.failure.is_some() {
            return None;
        }
        let mut size = 0;
        // SAFETY: as in `feed`.
        let written = unsafe {
            (self.openssl.ERR_clear_error)();
            (self.openssl.SSL_write_ex)(self.ssl, plain.as_ptr().cast(), plain.len(), &mut size)
        };
        if written != 1 || size != plain.len() {
            self.failure = Some(write_failure(self.openssl.take_error()));
            return None;
        }
        Some(self.take(out))
    }

    fn write_end(&mut self) {
        if self.failure.is_none() {
            // SAFETY: as in `feed`.
            unsafe { (self.openssl.SSL_shutdown)(self.ssl) };
            self.openssl.take_error();
        }
    }

    fn to_send(&self) -> usize {
        // SAFETY: as in `feed`.
        unsafe { (self.openssl.BIO_ctrl_pending)((self.openssl.SSL_get_wbio)(self.ssl)) }
    }

    fn take(&mut self, out: &mut [u8]) -> usize {
        let size = out.len().min(c_int::MAX as usize) as c_int;
        // SAFETY: as in `feed`.
        let taken = unsafe {
            let bio = (self.openssl.SSL_get_wbio)(self.ssl);
            (self.openssl.BIO_read)(bio, out.as_mut_ptr().cast(), size)
        };
        usize::try_from(taken).unwrap_or(0)
    }

    fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }
}

impl Drop for OpenSslSession {
    fn drop(&mut self) {
        // SAFETY: the session holds a reference. Python may have dropped its own: then the BIOs in memory go, too.
        unsafe { (self.openssl.SSL_free)(self.ssl) };
    }
}

/// Why nothing could be encrypted. It goes to a BIO in memory, which grows, and says nothing if it cannot.
fn write_failure(reason: Option<String>) -> Failure {
    match reason {
        Some(reason) if reason != "malloc failure" && reason != "BUF lib" => Failure::new(reason),
        _ => Failure::no_memory(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_memory_is_told_from_other_failures() {
        for (reason, no_memory) in [(None, true), (Some("malloc failure"), true), (Some("protocol is shutdown"), false)]
        {
            let failure = write_failure(reason.map(str::to_string));
            assert_eq!(failure == Failure::no_memory(), no_memory);
        }
    }
}
