pub mod channel;
pub mod openssl;
pub mod openssl_session;
pub mod rustls_session;
pub mod session;
pub mod settings;
pub mod stream;
#[cfg(all(test, not(miri)))]
#[path = "../../../../tests/crate/tls_tests.rs"]
mod tests;
pub mod tickets;
mod verifier;
