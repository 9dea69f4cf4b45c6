//! Shutdown by SIGINT and SIGTERM.

use std::io::{Read, Write};

use super::client::{JSON, connect, post, request};
use super::folders::Folder;
use super::process::{Server, signal};

const LONG: &str = r#"{"prompt":"a","max_tokens":4000,"ignore_eos":true,"stream":true}"#;

#[test]
fn an_idle_server_stops_at_once() {
    for name in ["TERM", "INT"] {
        let server = Server::start(&["--log", "error"]);
        assert_eq!(post(server.address, "/v1/completions", r#"{"prompt":"a","max_tokens":1}"#).status, 200);
        server.signal(name);
        let (status, stderr) = server.wait();
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{name}");
    }
}

#[test]
fn running_requests_are_cancelled_after_the_timeout() {
    let server = Server::start(&["--log", "error", "--shutdown-timeout", "0"]);
    let mut stream = connect(server.address);
    stream.write_all(&request("POST", "/v1/completions", &[JSON], LONG.as_bytes())).unwrap();
    stream.read_exact(&mut [0; 200]).unwrap();
    server.signal("TERM");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"finish_reason\":\"cancelled\"") && rest.contains("[DONE]"), "{rest}");
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn running_requests_finish_within_the_timeout() {
    let server = Server::start(&["--log", "error", "--shutdown-timeout", "600"]);
    let mut stream = connect(server.address);
    let body = LONG.replace("4000", "200");
    stream.write_all(&request("POST", "/v1/completions", &[JSON], body.as_bytes())).unwrap();
    stream.read_exact(&mut [0; 200]).unwrap();
    server.signal("TERM");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("[DONE]"), "{rest}");
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn what_a_killed_server_left_is_said_at_the_next_start() {
    let folder = Folder::new("killed-server");
    let runtime = [("XDG_RUNTIME_DIR", folder.path())];
    let pid_files = || -> Vec<_> {
        let entries = std::fs::read_dir(format!("{}/omnibus/servers", folder.path())).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let server = Server::start_with(&[], &runtime);
    assert!(signal(server.id(), "KILL"));
    server.wait();
    let left = pid_files();
    let [file] = left.as_slice() else { panic!("{left:?}") };
    let before: u64 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    // As if it had taken a terabyte with it.
    std::fs::write(file, (before + (1 << 40)).to_string()).unwrap();

    let server = Server::start_with(&[], &runtime);
    let lines = server.startup_lines.join("\n");
    assert!(lines.contains("a server did not shut down cleanly") && lines.contains("GB"), "{lines}");
    assert_eq!(pid_files().len(), 1);
    server.signal("TERM");
    assert_eq!(server.wait().0.code(), Some(0));
    assert!(pid_files().is_empty());

    let server = Server::start_with(&[], &runtime);
    let lines = server.startup_lines.join("\n");
    assert!(!lines.contains("cleanly"), "{lines}");
}
