//! Sockets and names of the server: `--uds`, `LISTEN_FDS`, `--allowed-hosts`, `--allowed-origins`.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use super::client::{JSON, Reply, exchange, exchange_on, get, request};
use super::process::{Server, omnibus};

const HI: &[u8] = br#"{"prompt":"a","max_tokens":1}"#;

fn post(headers: &[(&str, &str)]) -> Vec<u8> {
    let text =
        String::from_utf8(request("POST", "/v1/completions", &[&[JSON], headers].concat(), HI)).unwrap();
    match headers.iter().any(|(name, _)| *name == "host") {
        true => text.replacen("host: localhost\r\n", "", 1).into_bytes(),
        false => text.into_bytes(),
    }
}

fn status(server: &Server, headers: &[(&str, &str)]) -> u16 {
    exchange(server.address, &post(headers)).unwrap().status
}

#[test]
fn hosts_and_origins_are_settings() {
    let variables = [("OMNIBUS_ALLOWED_HOSTS", "chat.example, *.lan.example")];
    let arguments = ["--log", "error", "--allowed-origins", "https://a.example,https://b.example"];
    let server = Server::start_with(&arguments, &variables);
    assert_eq!(status(&server, &[]), 200);
    assert_eq!(status(&server, &[("host", "chat.example")]), 200);
    assert_eq!(status(&server, &[("host", "a.lan.example")]), 200);
    assert_eq!(status(&server, &[("host", "evil.example")]), 403);
    assert_eq!(status(&server, &[("origin", "https://b.example")]), 200);
    assert_eq!(status(&server, &[("origin", "http://localhost:3000")]), 200);
    assert_eq!(status(&server, &[("origin", "https://evil.example")]), 403);
}

#[test]
fn a_server_of_all_addresses_has_local_names() {
    let mut server = Server::start(&["--log", "error", "--host", "0.0.0.0"]);
    server.address.set_ip([127, 0, 0, 1].into());
    assert_eq!(status(&server, &[("host", "omnibus:8000")]), 200);
    assert_eq!(status(&server, &[("host", "evil.example")]), 403);
}

fn ask(path: &std::path::Path) -> Reply {
    exchange_on(UnixStream::connect(path).unwrap(), &post(&[("host", "any.example")])).unwrap()
}

#[test]
fn a_unix_socket_is_served_and_printed() {
    let path = std::env::temp_dir().join(format!("omnibus-uds-{}.sock", std::process::id()));
    let server = Server::start(&["--log", "error", "--uds", path.to_str().unwrap()]);
    let line = server.startup_lines.last().unwrap();
    assert!(
        line.starts_with(&format!("curl --unix-socket '{}' http://localhost/v1/", path.display())),
        "{line}"
    );
    let reply = ask(&path);
    assert_eq!(reply.status, 200, "{}", reply.body);
    server.signal("TERM");
    assert_eq!(server.wait().0.code(), Some(0));
    assert!(!path.exists());
}

/// Starts a server with a socket of a service manager.
fn activated(socket: OwnedFd) -> Server {
    let command = omnibus(&[]);
    let program = command.get_program().to_owned();
    let mut shell = Command::new("sh");
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve --log error 3<&0 </dev/null";
    shell.arg("-c").arg(script).arg(program).stdin(Stdio::from(socket));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Server::start_command(shell)
}

#[test]
fn sockets_of_a_service_manager_are_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = activated(listener.into());
    assert_eq!(server.address, address);
    assert_eq!(status(&server, &[]), 200);
    assert_eq!(status(&server, &[("host", "evil.example")]), 403);
    drop(server);
    let path = std::env::temp_dir().join(format!("omnibus-activated-{}.sock", std::process::id()));
    _ = std::fs::remove_file(&path);
    let server = activated(UnixListener::bind(&path).unwrap().into());
    assert_eq!(ask(&path).status, 200);
    server.signal("TERM");
    assert_eq!(server.wait().0.code(), Some(0));
    assert!(path.exists(), "the socket is the service manager's");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn sockets_for_another_process_are_left_alone() {
    let server = Server::start_with(&["--log", "error"], &[("LISTEN_FDS", "1"), ("LISTEN_PID", "1")]);
    assert_eq!(get(server.address, "/ready").status, 200);
}

#[test]
fn a_descriptor_that_is_no_socket_is_wrong_usage() {
    let mut command = omnibus(&["serve", "--log", "error"]);
    command.envs([("LISTEN_FDS", "1"), ("LISTEN_FDS_FIRST_FD", "0"), ("LISTEN_PID", "")]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{why}");
    assert!(why.starts_with("error: LISTEN_FDS: cannot use a socket: "), "{why}");
}
