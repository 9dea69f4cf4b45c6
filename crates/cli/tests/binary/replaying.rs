//! `serve --record` and `replay`, with the embedded model.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use super::client::post;
use super::process::{Server, run, text};

const BODIES: &[(&str, &str)] = &[
    (
        "/v1/chat/completions",
        r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":8,"temperature":0}"#,
    ),
    ("/v1/completions", r#"{"prompt":"The","max_tokens":8,"seed":7,"stream":true}"#),
    ("/v1/messages", r#"{"model":"any","messages":[{"role":"user","content":"hi"}],"max_tokens":8}"#),
    ("/v1/completions", r#"{"prompt":7}"#),
];

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("omnibus-records-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed may have made none.
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Records some requests.
fn record(folder: &Folder) {
    let server = Server::start(&["--record", folder.path()]);
    for (path, body) in BODIES {
        post(server.address, path, body);
    }
    server.signal("TERM");
    assert!(server.wait().0.success());
}

fn rows(output: &Output) -> Vec<Value> {
    let printed: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    printed.as_array().unwrap().clone()
}

#[test]
fn recorded_requests_are_played_again_and_compared() {
    let folder = Folder::new("same");
    record(&folder);
    let output = run(&["replay", folder.path(), "--json", "--fast"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let rows = rows(&output);
    let answers: Vec<&Value> = rows.iter().map(|row| &row["answer"]).collect();
    assert_eq!(answers, ["same", "same", "not compared", "same"], "{rows:?}");
    assert_eq!(rows[3]["played"]["status"], 400);
}

#[test]
fn requests_of_a_conversation_are_played_in_a_new_one() {
    let folder = Folder::new("conversation");
    let server = Server::start(&["--record", folder.path()]);
    let made: Value = serde_json::from_str(&post(server.address, "/v1/conversations", "{}").body).unwrap();
    for conversation in [made["id"].clone(), serde_json::json!({"id": made["id"]})] {
        let body = serde_json::json!({
            "input": "hi", "conversation": conversation, "max_output_tokens": 16, "temperature": 0,
        });
        assert_eq!(post(server.address, "/v1/responses", &body.to_string()).status, 200);
    }
    server.signal("TERM");
    assert!(server.wait().0.success());
    for options in [&["--fast"][..], &[]] {
        let output = run(&[&["replay", folder.path(), "--json"], options].concat());
        let rows = rows(&output);
        let answers: Vec<&Value> = rows.iter().map(|row| &row["answer"]).collect();
        assert_eq!(answers, ["same", "same"], "{rows:?}");
    }
}

#[test]
fn an_answer_that_differs_is_named_and_ends_in_1() {
    let folder = Folder::new("differs");
    record(&folder);
    change(&folder.0, |record| record["answer"]["sha256"] = "0".repeat(64).into());
    let server = Server::start(&[]);
    let url = format!("http://{}", server.address);
    let output = run(&["replay", folder.path(), "--url", &url]);
    assert_eq!(output.status.code(), Some(1));
    let (table, note) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(table.matches("differs: another text").count(), 2, "{table}");
    assert!(note.contains("2 of 4 answers differ"), "{note}");
}

/// Changes every record that has a hash.
fn change(folder: &Path, change: impl Fn(&mut Value)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        if record["answer"]["sha256"].is_string() {
            change(&mut record);
            std::fs::write(&path, record.to_string()).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_recorded_or_played_is_refused_by_name() {
    let refused = |arguments: &[&str], code: i32, names: &str| {
        let output = run(arguments);
        let why = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{why}");
        assert!(why.contains(names), "{why}");
    };
    refused(&["replay"], 2, "DIR");
    refused(&["replay", "/nonexistent/records"], 1, "/nonexistent/records");
    refused(&["replay", "x", "--url", "http://127.0.0.1:1", "-m", "y"], 2, "--url");
    refused(&["serve", "--record", "/dev/null/x"], 2, "--record");
    refused(&["serve", "--otlp-traces-endpoint", "collector:4317"], 2, "--otlp-traces-endpoint");
    let empty = Folder::new("empty");
    std::fs::create_dir_all(&empty.0).unwrap();
    refused(&["replay", empty.path()], 1, "no records");
    std::fs::write(empty.0.join("1.json"), "{}").unwrap();
    refused(&["replay", empty.path()], 1, "1.json");
}
