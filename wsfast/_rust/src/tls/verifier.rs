//! OpenSSL's verdict on the certificate of a server, for rustls: with an SSL_CTX of Python's, as in its own handshake.
//!
//! So there is one verifier for both libraries, and no certificate that one accepts and the other refuses. rustls itself
//! verifies that the server has the key of its certificate.

use std::ffi::{c_char, c_long, CStr};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use crate::tls::openssl::{self, OpenSsl, Pointer};

const X509_V_OK: i32 = 0;
const X509_V_ERR_UNSPECIFIED: i32 = 1;
const X509_V_ERR_OUT_OF_MEM: i32 = 17;
const X509_V_ERR_HOSTNAME_MISMATCH: i32 = 62;
const X509_V_ERR_IP_ADDRESS_MISMATCH: i32 = 64;

/// Why a certificate is not trusted, in Python's words.
#[derive(Debug)]
pub struct Refused {
    pub code: i32,
    pub message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

pub struct Verifier {
    openssl: &'static OpenSsl,
    context: Pointer,
    check_name: bool,
    provider: Arc<CryptoProvider>,
}

// SAFETY: an SSL_CTX may be used by any number of threads. Python never changes that of a wsfast.TLS.
unsafe impl Send for Verifier {}
unsafe impl Sync for Verifier {}

impl Drop for Verifier {
    fn drop(&mut self) {
        // SAFETY: it is ours, see `new`.
        unsafe { (self.openssl.SSL_CTX_free)(self.context) };
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl Verifier {
    /// # Safety
    /// `context` is an SSL_CTX.
    pub unsafe fn new(context: Pointer, check_name: bool, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let openssl = openssl::loaded().ok_or("OpenSSL is not loaded")?;
        if (openssl.SSL_CTX_up_ref)(context) != 1 {
            return Err("no SSL_CTX".to_string());
        }
        Ok(Verifier { openssl, context, check_name, provider })
    }

    /// Does the work of ssl_verify_cert_chain() of libssl, for a client.
    fn verify(&self, chain: &Chain, name: &ServerName<'_>) -> i32 {
        let openssl = self.openssl;
        // SAFETY: every object is alive until it is freed below, and none is used afterwards.
        unsafe {
            let verification = (openssl.X509_STORE_CTX_new)();
            let store = (openssl.SSL_CTX_get_cert_store)(self.context);
            if verification.is_null() || (openssl.X509_STORE_CTX_init)(verification, store, chain.leaf, chain.sent) != 1
            {
                (openssl.X509_STORE_CTX_free)(verification);
                return X509_V_ERR_OUT_OF_MEM;
            }
            let parameters = (openssl.X509_STORE_CTX_get0_param)(verification);
            let of_context = (openssl.SSL_CTX_get0_param)(self.context);
            let level = (openssl.SSL_CTX_get_security_level)(self.context);
            (openssl.X509_VERIFY_PARAM_set_auth_level)(parameters, level);
            let ready = (openssl.X509_STORE_CTX_set_default)(verification, b"ssl_server\0".as_ptr().cast()) == 1
                && (openssl.X509_VERIFY_PARAM_set1)(parameters, of_context) == 1
                && (!self.check_name || self.expect(parameters, of_context, name));
            let mut code = X509_V_ERR_UNSPECIFIED;
            if ready {
                let verified = (openssl.X509_verify_cert)(verification);
                code = (openssl.X509_STORE_CTX_get_error)(verification);
                if verified != 1 && code == X509_V_OK {
                    code = X509_V_ERR_UNSPECIFIED;
                }
            }
            (openssl.X509_STORE_CTX_free)(verification);
            code
        }
    }

    unsafe fn expect(&self, parameters: Pointer, of_context: Pointer, name: &ServerName<'_>) -> bool {
        let openssl = self.openssl;
        let flags = (openssl.X509_VERIFY_PARAM_get_hostflags)(of_context);
        (openssl.X509_VERIFY_PARAM_set_hostflags)(parameters, flags);
        match name {
            ServerName::DnsName(name) => {
                let name = name.as_ref();
                (openssl.X509_VERIFY_PARAM_set1_host)(parameters, name.as_ptr().cast::<c_char>(), name.len()) == 1
            }
            ServerName::IpAddress(ip) => {
                let bytes = match IpAddr::from(*ip) {
                    IpAddr::V4(ip) => ip.octets().to_vec(),
                    IpAddr::V6(ip) => ip.octets().to_vec(),
                };
                (openssl.X509_VERIFY_PARAM_set1_ip)(parameters, bytes.as_ptr(), bytes.len()) == 1
            }
            _ => false,
        }
    }

    fn describe(&self, code: i32, name: &ServerName<'_>) -> String {
        let kind = match code {
            X509_V_ERR_HOSTNAME_MISMATCH => "Hostname",
            X509_V_ERR_IP_ADDRESS_MISMATCH => "IP address",
            _ => {
                // SAFETY: the texts are constant.
                let text = unsafe { CStr::from_ptr((self.openssl.X509_verify_cert_error_string)(code.into())) };
                return text.to_string_lossy().into_owned();
            }
        };
        format!("{kind} mismatch, certificate is not valid for '{}'.", name.to_str())
    }
}

/// The server's certificates, as OpenSSL has them.
struct Chain {
    openssl: &'static OpenSsl,
    leaf: Pointer,
    sent: Pointer,
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: they are ours, and NULL is allowed.
        unsafe {
            (self.openssl.X509_free)(self.leaf);
            (self.openssl.OPENSSL_sk_pop_free)(self.sent, self.openssl.X509_free);
        }
    }
}

impl Chain {
    fn new(openssl: &'static OpenSsl, leaf: &[u8], sent: &[CertificateDer<'_>]) -> Option<Chain> {
        // SAFETY: the stack owns what is pushed.
        unsafe {
            let chain = Chain { openssl, leaf: parse(openssl, leaf), sent: (openssl.OPENSSL_sk_new_null)() };
            if chain.leaf.is_null() || chain.sent.is_null() {
                return None;
            }
            for der in sent {
                let certificate = parse(openssl, der);
                if certificate.is_null() {
                    return None;
                }
                if (openssl.OPENSSL_sk_push)(chain.sent, certificate) == 0 {
                    (openssl.X509_free)(certificate);
                    return None;
                }
            }
            Some(chain)
        }
    }
}

/// NULL if that is no certificate, or if there is something behind it.
unsafe fn parse(openssl: &OpenSsl, der: &[u8]) -> Pointer {
    let mut at = der.as_ptr();
    let certificate = (openssl.d2i_X509)(std::ptr::null_mut(), &mut at, der.len() as c_long);
    if !certificate.is_null() && at != der.as_ptr().add(der.len()) {
        (openssl.X509_free)(certificate);
        return std::ptr::null_mut();
    }
    certificate
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = Chain::new(self.openssl, end_entity, intermediates);
        let code = chain.as_ref().map(|chain| self.verify(chain, name));
        // Otherwise Python would take an error left in this thread's queue for its own.
        self.openssl.take_error();
        match code {
            Some(X509_V_OK) => Ok(ServerCertVerified::assertion()),
            Some(code) => {
                let refused = Refused { code, message: self.describe(code, name) };
                Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refused)))))
            }
            None => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
