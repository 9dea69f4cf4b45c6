//! TLS of TCP connections, with a certificate that can be replaced while the server runs.
//!
//! Invariant: a certificate that cannot be used replaces none.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, in files.
#[derive(Debug, Clone)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The certificate's file has none.
    #[error("{} has no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    /// The key's file has none.
    #[error("{} has no private key in PEM", .0.display())]
    NoKey(PathBuf),
    /// The key is of another certificate.
    #[error("the key in {} is not that of the certificate in {}", key.display(), certificate.display())]
    Mismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// Both cannot be used together.
    #[error("cannot use the certificate in {}: {why}", path.display())]
    Unusable {
        /// The file of the certificate.
        path: PathBuf,
        /// What is wrong with it.
        why: rustls::Error,
    },
}

/// The certificate of new connections.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Tls {
    /// Reads a chain of certificates and the key of its first one, both in PEM.
    pub fn read(certificate: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let current = Arc::new(Current(RwLock::new(Arc::new(certified(&certificate, &key)?))));
        let unusable = |why| TlsError::Unusable { path: certificate.clone(), why };
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().map_err(unusable)?;
        let mut config = config
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { certificate, key, current, config: Arc::new(config) })
    }

    /// Reads both files again, for connections from now on. When it fails, the certificate stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let certified = Arc::new(certified(&self.certificate, &self.key)?);
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    /// Accepts encrypted connections.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

fn certified(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let unreadable = |path: &Path, error: pem::Error| TlsError::Unreadable {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unreadable(certificate, error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(certificate.to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey(key.to_owned()),
        error => unreadable(key, error),
    })?;
    CertifiedKey::from_der(chain, private, &default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::Mismatch { key: key.to_owned(), certificate: certificate.to_owned() }
        }
        why => TlsError::Unusable { path: certificate.to_owned(), why },
    })
}
