//! TLS: connections, certificates that are replaced, and clients that do not speak it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use omnibus_server::{Settings, Tls};
use omnibus_testing::tls::{Identity, certificate_file, connect_trusting, key_file};
use rustls::ProtocolVersion;
use tempfile::TempDir;

use super::client::{JSON, connect, exchange, exchange_on, request};
use super::{Server, server_with};

const CHAT: &str = "/v1/chat/completions";
const HI: &[u8] = br#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":2,"stream":true}"#;

/// The files that a server reads.
struct Files(TempDir);

impl Files {
    fn of(identity: &Identity) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        identity.write(files.0.path());
        files
    }

    fn write(&self, certificate: &str, key: &str) {
        std::fs::write(self.certificate(), certificate).unwrap();
        std::fs::write(self.key(), key).unwrap();
    }

    fn certificate(&self) -> PathBuf {
        certificate_file(self.0.path())
    }

    fn key(&self) -> PathBuf {
        key_file(self.0.path())
    }

    fn tls(&self) -> Result<Tls, String> {
        let folder = self.0.path().display().to_string();
        Tls::read(self.certificate(), self.key()).map_err(|error| error.to_string().replace(&folder, ""))
    }
}

fn server_of(tls: &Tls) -> Server {
    server_with(Settings { tls: Some(tls.clone()), ..Settings::default() })
}

fn check_works(server: &Server, trusted: &Identity) {
    let stream = connect_trusting(server.address, trusted).unwrap();
    let reply = exchange_on(stream, &request("POST", CHAT, &[JSON], HI)).unwrap();
    assert_eq!((reply.status, reply.chunks().len() >= 2), (200, true), "{}", reply.body);
}

#[test]
fn requests_and_streams_are_encrypted() {
    let identity = Identity::default();
    let server = server_of(&Files::of(&identity).tls().unwrap());
    check_works(&server, &identity);
    let mut stream = connect_trusting(server.address, &identity).unwrap();
    assert_eq!(stream.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let body = request("GET", "/ready", &[("host", "evil.example")], b"");
    stream.write_all(&body).unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"HTTP/1.1 403", "the Host is checked");
}

#[test]
fn a_client_without_tls_is_no_trouble() {
    let identity = Identity::default();
    let server = server_of(&Files::of(&identity).tls().unwrap());
    let plain = exchange(server.address, &request("GET", "/ready", &[], b""));
    assert!(plain.is_none_or(|reply| reply.status == 0), "an alert is no response");
    // It never sends its hello.
    let stalled = connect(server.address);
    check_works(&server, &identity);
    drop(stalled);
}

#[test]
fn a_client_that_does_not_finish_its_handshake_holds_up_no_shutdown() {
    let identity = Identity::default();
    let mut server = server_of(&Files::of(&identity).tls().unwrap());
    let _stalled = connect(server.address);
    check_works(&server, &identity);
    server.join();
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn a_new_certificate_is_of_new_connections() {
    let (old, new) = (Identity::default(), Identity::default());
    let files = Files::of(&old);
    let tls = files.tls().unwrap();
    let server = server_of(&tls);
    let before = connect_trusting(server.address, &old).unwrap();
    assert!(connect_trusting(server.address, &new).is_err());
    files.write(&new.certificate, &new.key);
    tls.reload().unwrap();
    check_works(&server, &new);
    assert!(connect_trusting(server.address, &old).is_err());
    let reply = exchange_on(before, &request("GET", "/ready", &[], b"")).unwrap();
    assert_eq!(reply.status, 200, "a connection keeps the certificate that it began with");
}

#[test]
fn a_broken_new_certificate_keeps_the_old_one() {
    let (old, new) = (Identity::default(), Identity::default());
    let files = Files::of(&old);
    let tls = files.tls().unwrap();
    let server = server_of(&tls);
    let cut = &new.certificate[..new.certificate.len() / 2];
    for (certificate, key) in [
        ("", ""),
        (cut, &*new.key),
        (&*new.certificate, &*old.key),
        (&*new.certificate, "noise"),
        ("noise", &*new.key),
    ] {
        files.write(certificate, key);
        assert!(tls.reload().is_err(), "{certificate} {key}");
        check_works(&server, &old);
    }
    std::fs::remove_file(files.certificate()).unwrap();
    assert!(tls.reload().is_err());
    check_works(&server, &old);
}

#[test]
fn errors_name_the_file_and_the_remedy() {
    let (one, other) = (Identity::default(), Identity::default());
    let files = Files::of(&one);
    let check = |certificate: &str, key: &str, expected: &str| {
        files.write(certificate, key);
        assert_eq!(files.tls().map(|_| ()).unwrap_err(), expected);
    };
    check("", &one.key, "/cert.pem has no certificate in PEM");
    check(&one.certificate, "", "/key.pem has no private key in PEM");
    check(&one.certificate, &other.key, "the key in /key.pem is not that of the certificate in /cert.pem");
    std::fs::remove_file(files.key()).unwrap();
    let why = files.tls().map(|_| ()).unwrap_err();
    assert!(why.starts_with("cannot read /key.pem: ") && why.contains("No such file"), "{why}");
}
