//! The OpenSSL that Python's own ssl module uses: the functions that the crate calls, and the texts of their errors.
//!
//! Nothing is linked. The functions are looked up in the library that Python has loaded, since the objects that are
//! handed to them (an SSL, an SSL_CTX) are that library's.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void, CStr};
use std::sync::OnceLock;

/// Objects of OpenSSL, of which only addresses are known here.
pub type Pointer = *mut c_void;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        #[allow(non_snake_case)]
        pub struct OpenSsl {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl OpenSsl {
            /// The error is the name of the missing function.
            #[allow(non_snake_case)]
            unsafe fn find(library: Pointer) -> Result<OpenSsl, &'static str> {
                $(
                    let $name = libc::dlsym(library, concat!(stringify!($name), "\0").as_ptr().cast());
                    if $name.is_null() {
                        return Err(stringify!($name));
                    }
                )*
                Ok(OpenSsl {
                    $($name: std::mem::transmute::<Pointer, unsafe extern "C" fn($($argument),*) -> $result>($name),)*
                })
            }
        }
    };
}

functions! {
    // A connection.
    SSL_read_ex(Pointer, Pointer, usize, *mut usize) -> c_int;
    SSL_write_ex(Pointer, *const c_void, usize, *mut usize) -> c_int;
    SSL_get_error(Pointer, c_int) -> c_int;
    SSL_shutdown(Pointer) -> c_int;
    SSL_is_init_finished(Pointer) -> c_int;
    SSL_set_options(Pointer, u64) -> u64;
    SSL_get_rbio(Pointer) -> Pointer;
    SSL_get_wbio(Pointer) -> Pointer;
    SSL_get_SSL_CTX(Pointer) -> Pointer;
    SSL_up_ref(Pointer) -> c_int;
    SSL_free(Pointer) -> ();
    BIO_read(Pointer, Pointer, c_int) -> c_int;
    BIO_write(Pointer, *const c_void, c_int) -> c_int;
    BIO_ctrl_pending(Pointer) -> usize;
    // A verdict on a certificate.
    SSL_CTX_up_ref(Pointer) -> c_int;
    SSL_CTX_free(Pointer) -> ();
    SSL_CTX_get_cert_store(Pointer) -> Pointer;
    SSL_CTX_get0_param(Pointer) -> Pointer;
    SSL_CTX_get_security_level(Pointer) -> c_int;
    X509_STORE_CTX_new() -> Pointer;
    X509_STORE_CTX_free(Pointer) -> ();
    X509_STORE_CTX_init(Pointer, Pointer, Pointer, Pointer) -> c_int;
    X509_STORE_CTX_set_default(Pointer, *const c_char) -> c_int;
    X509_STORE_CTX_get0_param(Pointer) -> Pointer;
    X509_STORE_CTX_get_error(Pointer) -> c_int;
    X509_VERIFY_PARAM_set1(Pointer, Pointer) -> c_int;
    X509_VERIFY_PARAM_set_auth_level(Pointer, c_int) -> ();
    X509_VERIFY_PARAM_get_hostflags(Pointer) -> c_uint;
    X509_VERIFY_PARAM_set_hostflags(Pointer, c_uint) -> ();
    X509_VERIFY_PARAM_set1_host(Pointer, *const c_char, usize) -> c_int;
    X509_VERIFY_PARAM_set1_ip(Pointer, *const u8, usize) -> c_int;
    X509_verify_cert(Pointer) -> c_int;
    X509_verify_cert_error_string(c_long) -> *const c_char;
    X509_free(Pointer) -> ();
    d2i_X509(*mut Pointer, *mut *const u8, c_long) -> Pointer;
    OPENSSL_sk_new_null() -> Pointer;
    OPENSSL_sk_push(Pointer, *const c_void) -> c_int;
    OPENSSL_sk_pop_free(Pointer, unsafe extern "C" fn(Pointer) -> ()) -> ();
    // The queue of errors of a thread, which is Python's too.
    ERR_peek_error() -> c_ulong;
    ERR_clear_error() -> ();
    ERR_reason_error_string(c_ulong) -> *const c_char;
}

static LOADED: OnceLock<Result<OpenSsl, String>> = OnceLock::new();

/// Looks up the functions, once. `path`: the file of Python's module _ssl, or None if that is part of the program.
pub fn load(path: Option<&CStr>) -> Result<&'static OpenSsl, &'static str> {
    // SAFETY: the library is loaded already, and is never unloaded.
    let loaded = LOADED.get_or_init(|| unsafe { look_up(path) });
    loaded.as_ref().map_err(String::as_str)
}

/// The functions, once `load` has found them.
pub fn loaded() -> Option<&'static OpenSsl> {
    LOADED.get()?.as_ref().ok()
}

unsafe fn look_up(path: Option<&CStr>) -> Result<OpenSsl, String> {
    let library = libc::dlopen(path.map_or(std::ptr::null(), CStr::as_ptr), libc::RTLD_NOW | libc::RTLD_NOLOAD);
    if library.is_null() {
        return Err("Python's module _ssl is not where it says".to_string());
    }
    let functions = OpenSsl::find(library).map_err(|name| format!("Python's OpenSSL does not show its {name}()"))?;
    // The whole program was searched if there is no path, and it may have another OpenSSL as well.
    if path.is_none() {
        let module = home(libc::dlsym(library, b"PyInit__ssl\0".as_ptr().cast()));
        if module.is_none() || module != home(functions.SSL_read_ex as Pointer) {
            return Err("Python's OpenSSL cannot be told from another one".to_string());
        }
    }
    Ok(functions)
}

/// The file that a function is in, by the address where it lies.
unsafe fn home(function: Pointer) -> Option<usize> {
    let mut found: libc::Dl_info = std::mem::zeroed();
    (!function.is_null() && libc::dladdr(function, &mut found) != 0).then_some(found.dli_fbase as usize)
}

impl OpenSsl {
    /// True if they are an SSL and its SSL_CTX.
    ///
    /// # Safety
    /// `ssl` is an SSL, if Python keeps it where it is said to.
    pub unsafe fn check(&self, ssl: Pointer, context: Pointer) -> Result<(), &'static str> {
        if ssl.is_null() || (self.SSL_get_SSL_CTX)(ssl) != context {
            return Err("this Python keeps its SSL objects elsewhere");
        }
        Ok(())
    }

    /// The first error of this thread's queue, which is empty afterwards.
    pub fn take_error(&self) -> Option<String> {
        // SAFETY: the text is constant.
        unsafe {
            let error = (self.ERR_peek_error)();
            let text = (self.ERR_reason_error_string)(error);
            (self.ERR_clear_error)();
            (error != 0 && !text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said() {
        // SAFETY: this program is no Python, and has no OpenSSL.
        let reason = unsafe { look_up(None) }.err().unwrap();
        assert_eq!(reason, "Python's OpenSSL does not show its SSL_read_ex()");
        let reason = unsafe { look_up(Some(CStr::from_bytes_with_nul(b"/nowhere\0").unwrap())) }.err().unwrap();
        assert_eq!(reason, "Python's module _ssl is not where it says");
    }
}
