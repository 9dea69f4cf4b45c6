//! Certificates that sign themselves, and a client that trusts one.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::connect;

/// A new certificate of `localhost`, with its key.
pub struct Identity {
    /// In PEM.
    pub certificate: String,
    /// In PEM.
    pub key: String,
    der: CertificateDer<'static>,
}

impl Default for Identity {
    fn default() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Self {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
            der: made.cert.der().clone(),
        }
    }
}

/// The file of the certificate in a folder.
pub fn certificate_file(folder: &Path) -> PathBuf {
    folder.join("cert.pem")
}

/// The file of the key in a folder.
pub fn key_file(folder: &Path) -> PathBuf {
    folder.join("key.pem")
}

impl Identity {
    /// Writes both files.
    pub fn write(&self, folder: &Path) {
        std::fs::write(certificate_file(folder), &self.certificate).unwrap();
        std::fs::write(key_file(folder), &self.key).unwrap();
    }
}

/// An encrypted connection.
pub type Client = StreamOwned<ClientConnection, TcpStream>;

/// A connection of a client that trusts one certificate. Fails where the server has another.
pub fn connect_trusting(address: SocketAddr, trusted: &Identity) -> io::Result<Client> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, connect(address));
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}
