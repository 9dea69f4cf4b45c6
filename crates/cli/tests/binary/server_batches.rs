//! Batches in a server: every line once, whatever kills it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use omnibus_testing::client::{exchange, get, post, request};
use serde_json::{Value, json};

use crate::process::Server;

const LINES: usize = 60;

fn line(number: usize) -> String {
    let messages = json!([{"role": "user", "content": format!("Where does bus {number} stop?")}]);
    let body = json!({"messages": messages, "max_tokens": 8, "seed": number});
    let url = "/v1/chat/completions";
    format!("{}\n", json!({"custom_id": format!("line-{number}"), "url": url, "body": body}))
}

fn upload(address: SocketAddr, text: &str) -> Value {
    let part = "--edge\r\ncontent-disposition: form-data; name=";
    let form = format!(
        "{part}\"purpose\"\r\n\r\nbatch\r\n{part}\"file\"; filename=\"in\"\r\n\r\n{text}\r\n--edge--\r\n"
    );
    let kind = ("content-type", "multipart/form-data; boundary=edge");
    exchange(address, &request("POST", "/v1/files", &[kind], form.as_bytes())).unwrap().json()["id"].clone()
}

/// The batch once it has ended, or so many of its lines have.
fn once(address: SocketAddr, path: &str, lines: u64) -> Value {
    loop {
        let batch = get(address, path).json();
        if batch["status"] == "completed" || batch["request_counts"]["completed"].as_u64().unwrap() >= lines {
            return batch;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_killed_server_goes_on_with_its_batches_and_answers_each_line_once() {
    let state = std::env::temp_dir().join(format!("omnibus-server-batches-{}", std::process::id()));
    let arguments = ["--state-dir", state.to_str().unwrap(), "--batch-max-inflight", "3"];
    let mut server = Server::start(&arguments);
    let file = upload(server.address, &(0..LINES).map(line).collect::<String>());
    let body = json!({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"});
    let created = post(server.address, "/v1/batches", &body.to_string()).json();
    let path = format!("/v1/batches/{}", created["id"].as_str().unwrap());
    for kill in 1..=3 {
        let seen = once(server.address, &path, kill * 8);
        assert_eq!(seen["status"], "in_progress", "it is killed while it runs: {seen}");
        server.signal("KILL");
        server.wait();
        server = Server::start(&arguments);
        let found = get(server.address, &path).json();
        let count = |batch: &Value| batch["request_counts"]["completed"].as_u64().unwrap();
        assert!(count(&once(server.address, &path, count(&seen))) >= count(&seen), "{seen} {found}");
    }
    let batch = once(server.address, &path, u64::MAX);
    assert_eq!(batch["request_counts"], json!({"total": LINES, "completed": LINES, "failed": 0}));
    let output = format!("/v1/files/{}/content", batch["output_file_id"].as_str().unwrap());
    let output = get(server.address, &output).body;
    let ids: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["custom_id"].clone())
        .collect();
    assert_eq!(ids.len(), LINES);
    assert_eq!(ids.iter().map(ToString::to_string).collect::<BTreeSet<_>>().len(), LINES);
    std::fs::remove_dir_all(state).unwrap();
}
