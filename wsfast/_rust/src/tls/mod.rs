mod nested_session;
pub mod openssl;
mod openssl_session;
pub mod rustls_session;
pub mod session;
pub mod stream;
pub mod stream_session;
#[cfg(all(test, not(miri)))]
mod tests;
pub mod tickets;
mod verifier;
