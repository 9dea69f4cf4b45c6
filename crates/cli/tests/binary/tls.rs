//! `--tls-cert` and `--tls-key`, and their reload by SIGHUP.

use std::process::Command;

use omnibus_testing::tls::{Identity, certificate_file, connect_trusting, key_file};

use super::client::{exchange_on, get, request};
use super::process::Server;

fn is_served(server: &Server, identity: &Identity) -> bool {
    let ask = |stream| exchange_on(stream, &request("GET", "/ready", &[], b"")).map(|reply| reply.status);
    connect_trusting(server.address, identity).is_ok_and(|stream| ask(stream) == Some(200))
}

#[test]
fn a_certificate_is_replaced_by_sighup_and_a_broken_one_is_not_taken() {
    let folder = std::env::temp_dir().join(format!("omnibus-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (old, new) = (Identity::default(), Identity::default());
    old.write(&folder);
    let [certificate, key] =
        [certificate_file(&folder), key_file(&folder)].map(|path| path.display().to_string());
    let mut server = Server::start(&["--log", "info", "--tls-cert", &certificate, "--tls-key", &key]);
    let line = server.startup_lines.last().unwrap();
    assert!(line.starts_with("curl https://127.0.0.1:"), "{line}");
    assert!(is_served(&server, &old) && !is_served(&server, &new));
    std::fs::write(&certificate, "noise").unwrap();
    server.signal("HUP");
    let line = server.line_with("the certificate stays as it was");
    assert!(line.contains("ERROR") && line.contains("has no certificate in PEM"), "{line}");
    assert!(is_served(&server, &old));
    new.write(&folder);
    server.signal("HUP");
    server.line_with("certificate reloaded");
    assert!(is_served(&server, &new) && !is_served(&server, &old));
    server.signal("TERM");
    assert_eq!(server.wait().0.code(), Some(0));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn without_anything_to_read_again_sighup_ends_the_server() {
    let server = Server::start(&["--log", "error"]);
    server.signal("HUP");
    if ignores_hangups() {
        // As under `nohup`: the server keeps to it.
        assert_eq!(get(server.address, "/health").status, 200);
        return;
    }
    assert_eq!(server.wait().0.code(), None, "it has no exit code, but a signal");
}

/// Whether programs that this one starts ignore SIGHUP.
fn ignores_hangups() -> bool {
    let asks = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)";
    let output = Command::new("python3").args(["-c", asks]).output().unwrap();
    output.stdout.starts_with(b"True")
}
