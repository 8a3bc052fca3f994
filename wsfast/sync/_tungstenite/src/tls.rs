//! rustls, configured from what Python knows of an ssl.SSLContext.

use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::buffer::Buffer;
use crate::socket::{would_block, Errno, Socket};

/// Which checks of a certificate are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verify {
    Nothing,
    Chain,
    ChainAndName,
}

pub struct Settings<'s> {
    pub certificates: Vec<&'s [u8]>,
    /// All that rustls has, if empty.
    pub suites: &'s [u16],
    pub verify: Verify,
    pub tls12: bool,
    pub tls13: bool,
    /// As they stand in a ClientHello: each after its size.
    pub alpn: &'s [u8],
    /// PEM of the client's certificate and of its key.
    pub client: Option<(&'s [u8], &'s [u8])>,
    pub keylog: bool,
}

impl Settings<'_> {
    /// The error is a reason.
    pub fn build(&self) -> Result<ClientConfig, String> {
        let mut provider = ring::default_provider();
        if !self.suites.is_empty() {
            provider.cipher_suites.retain(|suite| self.suites.contains(&u16::from(suite.suite())));
        }
        let provider = Arc::new(provider);
        let versions: Vec<_> = [(self.tls12, &rustls::version::TLS12), (self.tls13, &rustls::version::TLS13)]
            .into_iter()
            .filter_map(|(wanted, version)| wanted.then_some(version))
            .collect();
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?;
        let builder = if self.verify == Verify::ChainAndName {
            builder.with_root_certificates(self.roots())
        } else {
            let verifier = Lenient::new(self.verify, self.roots(), provider)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        };
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
        Ok(config)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        // Bundles of systems hold authorities that nobody can parse, and OpenSSL skips them too.
        roots.add_parsable_certificates(self.certificates.iter().map(|der| CertificateDer::from_slice(der)));
        roots
    }
}

/// Checks less than rustls would: nothing, or all but the name.
#[derive(Debug)]
struct Lenient {
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Lenient {
    fn new(verify: Verify, roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let chain = match verify {
            Verify::Nothing => None,
            _ => Some(
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .build()
                    .map_err(|error| error.to_string())?,
            ),
        };
        Ok(Lenient { chain, provider })
    }
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        match chain.verify_server_cert(end_entity, intermediates, name, ocsp_response, now) {
            // The name is what rustls checks last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
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

/// The TLS of one connection. It does no input, and output only in `flush`.
pub struct Session {
    connection: ClientConnection,
}

impl Session {
    pub fn new(config: Arc<ClientConfig>, name: &str) -> Result<Self, String> {
        let name = ServerName::try_from(name.to_string()).map_err(|error| format!("{name}: {error}"))?;
        let mut connection = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        // Whoever sends a long message has it in memory already.
        connection.set_buffer_limit(None);
        Ok(Session { connection })
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Takes what was received, and appends what it says. True at the end: the peer said that nothing follows.
    pub fn read(&mut self, mut wire: &[u8], plain: &mut Buffer) -> Result<bool, Error> {
        while !wire.is_empty() {
            // It copies at most one record, and none after the end.
            match self.connection.read_tls(&mut wire) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) => return Err(Error::General(error.to_string())),
            }
            let state = self.connection.process_new_packets()?;
            if state.plaintext_bytes_to_read() > 0 {
                let mut reader = self.connection.reader();
                while let Ok(chunk) = reader.fill_buf() {
                    if chunk.is_empty() {
                        break;
                    }
                    plain.append(chunk).map_err(|_| Error::General("out of memory".to_string()))?;
                    let size = chunk.len();
                    reader.consume(size);
                }
            }
            if state.peer_has_closed() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Encrypts; `flush` sends.
    pub fn write(&mut self, plain: &[u8]) {
        // It only fills buffers, which have no limit.
        let _ = self.connection.writer().write_all(plain);
    }

    pub fn write_end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Is something encrypted that was not sent?
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends what the kernel takes; true if that was all.
    pub fn flush(&mut self, socket: &Socket) -> Result<bool, Errno> {
        let mut sink = Sink { socket, errno: 0 };
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut sink).is_err() {
                return if would_block(sink.errno) { Ok(false) } else { Err(sink.errno) };
            }
        }
        Ok(true)
    }
}

/// The socket as rustls wants it, which keeps the errno.
struct Sink<'s> {
    socket: &'s Socket,
    errno: Errno,
}

impl Write for Sink<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(data)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Most often there is one record, and send(2) is cheaper than sendmsg(2).
        let sent = match slices {
            [slice] => self.socket.send(slice),
            _ => self.socket.send_vectored(slices),
        };
        sent.map_err(|errno| {
            self.errno = errno;
            io::Error::from_raw_os_error(errno)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
