//! The configuration of rustls, from the settings of a wsfast.TLS.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::ClientConfig;

use crate::tls::openssl::Pointer;
use crate::tls::tickets::Client;
use crate::tls::verifier::Verifier;

pub struct Settings<'s> {
    /// An SSL_CTX, which verifies.
    pub context: Pointer,
    pub check_name: bool,
    pub tls12: bool,
    pub tls13: bool,
    /// The protocols as a ClientHello has them: each after its size.
    pub alpn: &'s [u8],
    /// PEM of the client's certificate and of its key.
    pub client: Option<(&'s [u8], &'s [u8])>,
    pub keylog: bool,
    /// See `Client::new`.
    pub resume_for: Duration,
}

impl Settings<'_> {
    /// The error is a reason.
    ///
    /// # Safety
    /// `context` is an SSL_CTX.
    pub unsafe fn build(&self) -> Result<Client, String> {
        let provider = Arc::new(ring::default_provider());
        let versions: Vec<_> = [(self.tls12, &rustls::version::TLS12), (self.tls13, &rustls::version::TLS13)]
            .into_iter()
            .filter_map(|(wanted, version)| wanted.then_some(version))
            .collect();
        let verifier = Verifier::new(self.context, self.check_name, provider.clone())?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|error| format!("the client's certificate: {error}"))?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the client's key: {error}"))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
            }
        };
        let mut alpn = self.alpn;
        while let Some((size, rest)) = alpn.split_first() {
            let (protocol, rest) = rest.split_at(usize::from(*size).min(rest.len()));
            config.alpn_protocols.push(protocol.to_vec());
            alpn = rest;
        }
        if self.keylog {
            config.key_log = Arc::new(rustls::KeyLogFile::new());
        }
        Ok(Client::new(config, self.resume_for))
    }
}
