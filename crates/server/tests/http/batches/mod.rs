//! Files and batches: shapes, states, what is refused, and what is still there after a restart.

mod files;
mod messages;
mod openai;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use omnibus_batches::Store;
use omnibus_server::{BatchSettings, Keys, Settings};
use serde_json::{Value, json};

use super::client::{JSON, Reply, exchange, get, post, request};
use super::{Server, server_with};

/// A server that keeps batches in a folder.
fn server_in(state: &Path) -> Server {
    server_of(state, Settings::default(), 1 << 30)
}

fn server_of(state: &Path, settings: Settings, most_bytes: u64) -> Server {
    let store = Arc::new(Store::open(state, most_bytes).unwrap());
    server_with(Settings { batches: Some(BatchSettings { store, width: 4 }), ..settings })
}

fn with_keys(state: &Path, keys: &[&str]) -> Server {
    let keys = Keys::new(keys.iter().map(|key| (*key).to_owned())).unwrap();
    server_of(state, Settings { keys, ..Settings::default() }, 1 << 30)
}

const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=edge");

/// A form of fields, whose values may be files.
fn form(fields: &[(&str, &str)]) -> String {
    let part = |(name, value): &(&str, &str)| {
        let file = if *name == "file" { "; filename=\"in.jsonl\"" } else { "" };
        format!("--edge\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n")
    };
    format!("{}--edge--\r\n", fields.iter().map(part).collect::<String>())
}

fn send_form(server: &Server, fields: &[(&str, &str)]) -> Reply {
    exchange(server.address, &request("POST", "/v1/files", &[FORM], form(fields).as_bytes())).unwrap()
}

/// Sends a file of requests; its id.
fn upload(server: &Server, lines: &str) -> String {
    let reply = send_form(server, &[("purpose", "batch"), ("file", lines)]);
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["id"].as_str().unwrap().to_owned()
}

fn delete(server: &Server, path: &str) -> Reply {
    exchange(server.address, &request("DELETE", path, &[], b"")).unwrap()
}

fn chat(custom_id: &str, text: &str) -> String {
    let body = json!({"model": "scripted", "max_tokens": 2, "messages": [{"role": "user", "content": text}]});
    let line = json!({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body});
    format!("{line}\n")
}

fn create(server: &Server, file: &str) -> Value {
    let body = json!({
        "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h",
        "metadata": {"run": "7"},
    });
    let reply = post(server.address, "/v1/batches", &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// The object at a path, once it satisfies a condition.
fn once(server: &Server, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..20_000 {
        let object = get(server.address, path).json();
        if condition(&object) {
            return object;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("{path} stays as it is");
}

fn ended(server: &Server, id: &Value) -> Value {
    let is_end = |batch: &Value| {
        let status = batch["status"].as_str().unwrap();
        matches!(status, "completed" | "failed" | "cancelled" | "expired")
    };
    once(server, &format!("/v1/batches/{}", id.as_str().unwrap()), is_end)
}

/// The lines of a file, by their names. Each is there once.
fn lines(server: &Server, file: &Value) -> Vec<Value> {
    let reply = get(server.address, &format!("/v1/files/{}/content", file.as_str().unwrap()));
    assert_eq!(reply.status, 200, "{}", reply.body);
    sorted(&reply.body)
}

fn sorted(text: &str) -> Vec<Value> {
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["custom_id"].as_str().unwrap().to_owned());
    let ids: Vec<&str> = lines.iter().map(|line| line["custom_id"].as_str().unwrap()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    lines
}

fn keyed(server: &Server, method: &str, path: &str, key: &str) -> Reply {
    let header = format!("Bearer {key}");
    exchange(server.address, &request(method, path, &[("authorization", &header), JSON], b"")).unwrap()
}
