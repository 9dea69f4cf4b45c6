//! `--api-key-file`: its two forms, and its reload by SIGHUP.

use std::path::PathBuf;

use super::client::{JSON, exchange, request};
use super::process::{Server, run, text};

const ALICE: &str = "[[key]]\nname = \"alice\"\nkey = \"sk-alice\"\nrequests-per-minute = 1\n";
const ROOT: &str = "[[key]]\nname = \"root\"\nkey = \"sk-root\"\nrole = \"admin\"\n";

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("omnibus-{name}-{}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

fn status(server: &Server, key: &str) -> u16 {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), JSON];
    let body = br#"{"prompt":"a","max_tokens":1}"#;
    exchange(server.address, &request("POST", "/v1/completions", &headers, body)).unwrap().status
}

#[test]
fn keys_are_read_again_by_sighup_and_a_broken_file_is_not_taken() {
    let path = file("keys.toml", &format!("{ALICE}{ROOT}"));
    let arguments = ["--log", "info", "--api-key", "sk-flag", "--api-key-file", path.to_str().unwrap()];
    let mut server = Server::start(&arguments);
    assert_eq!([status(&server, "sk-alice"), status(&server, "sk-alice")], [200, 429]);
    assert_eq!(
        [status(&server, "sk-root"), status(&server, "sk-flag"), status(&server, "sk-bob")],
        [200, 200, 401]
    );
    std::fs::write(&path, ALICE.replace("sk-alice", "sk alice")).unwrap();
    server.signal("HUP");
    let line = server.line_with("the API keys stay as they were");
    assert!(line.contains("ERROR") && line.contains("visible ASCII") && !line.contains("sk alice"), "{line}");
    assert_eq!(status(&server, "sk-root"), 200);
    std::fs::write(&path, ALICE.replace("alice", "bob")).unwrap();
    server.signal("HUP");
    let line = server.line_with("API keys reloaded");
    assert!(line.contains("keys=2"), "{line}");
    assert_eq!(
        [status(&server, "sk-bob"), status(&server, "sk-root"), status(&server, "sk-flag")],
        [200, 401, 200]
    );
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_of_lines_works_as_before() {
    let path = file("keys", "# ours\n\n  sk-one  \nsk-two\n");
    let server = Server::start(&["--log", "error", "--api-key-file", path.to_str().unwrap()]);
    assert_eq!(
        [status(&server, "sk-one"), status(&server, "sk-two"), status(&server, "# ours")],
        [200, 200, 401]
    );
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_cannot_be_used_is_wrong_usage() {
    for (index, (content, expected)) in [
        ("", "it has no keys"),
        ("[[key]]\nname = \"a\"\n", "line 1: missing field `key`"),
        ("[[key]]\nname = \"a b\"\nkey = \"k\"\n", "`a b` is not a name"),
        ("a b\n", "visible ASCII"),
        (&format!("{ALICE}{ALICE}"), "the API key of `alice` is there twice"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = file(&format!("keys-{index}"), content);
        let output = run(&["serve", "--port", "0", "--api-key-file", path.to_str().unwrap()]);
        let why = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{why}");
        assert!(why.starts_with("error: ") && why.contains(expected) && why.lines().count() == 1, "{why}");
        std::fs::remove_file(&path).unwrap();
    }
}
