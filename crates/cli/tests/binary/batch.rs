//! `omnibus batch`: every line once, whatever ends the process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{Server, omnibus, run, text};

const LINES: usize = 40;

/// Removed when dropped.
struct Files {
    folder: PathBuf,
    input: PathBuf,
    output: PathBuf,
}

impl Files {
    fn new(name: &str, lines: impl Iterator<Item = Value>) -> Self {
        let folder = std::env::temp_dir().join(format!("omnibus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |file: &str| folder.join(file);
        let (input, output) = (path("in.jsonl"), path("out.jsonl"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        std::fs::write(&input, text).unwrap();
        Self { folder, input, output }
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let files = ["batch", "-i", self.input.to_str().unwrap(), "-o", self.output.to_str().unwrap()];
        files.iter().copied().chain(more.iter().copied()).collect()
    }

    /// Results by their names. Each is there once.
    fn results(&self) -> BTreeMap<String, Value> {
        let mut results = BTreeMap::new();
        for line in std::fs::read_to_string(&self.output).unwrap().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let id = row["custom_id"].as_str().unwrap().to_owned();
            assert!(results.insert(id, row).is_none(), "{line} is there twice");
        }
        results
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is in the temporary folder.
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn question(number: usize) -> Value {
    let messages = json!([{"role": "user", "content": format!("Where does bus {number} stop?")}]);
    let body = json!({"messages": messages, "max_tokens": 12, "seed": number});
    json!({"custom_id": format!("line-{number}"), "method": "POST", "url": "/v1/chat/completions", "body": body})
}

#[test]
fn a_killed_batch_goes_on_and_has_each_line_once() {
    let server = Server::start(&[]);
    let url = format!("http://{}", server.address);
    let files = Files::new("batch-killed", (0..LINES).map(question));
    let limits = ["--url", url.as_str(), "--max-inflight", "2", "--json"];
    let mut kills = 0;
    while kills < 3 {
        let mut process = omnibus(&files.arguments(&limits)).spawn().unwrap();
        let before = std::fs::read(&files.output).map_or(0, |bytes| bytes.len());
        while process.try_wait().unwrap().is_none()
            && std::fs::read(&files.output).map_or(0, |bytes| bytes.len()) <= before
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        process.kill().unwrap();
        process.wait().unwrap();
        kills += 1;
    }
    let output = run(&files.arguments(&limits));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["lines"], LINES);
    assert!(summary["peak_memory_bytes"].as_u64().unwrap() > 0, "{summary}");
    assert!(summary["found"].as_u64().unwrap() >= 3, "{summary}");
    let results = files.results();
    assert_eq!(results.len(), LINES);
    assert!(results.values().all(|row| row["response"]["status_code"] == 200 && row["error"].is_null()));
    let again = run(&files.arguments(&limits));
    let summary: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&summary["found"], &summary["succeeded"]), (&json!(LINES), &json!(0)));
    assert_eq!((&summary["failed"], &summary["found_failed"]), (&json!(0), &json!(0)));
}

#[test]
fn a_server_of_its_own_answers_and_a_failed_line_is_its_own() {
    let bad = json!({"custom_id": "bad", "url": "/v1/chat/completions", "body": {"messages": 5}});
    let vectors = json!({"custom_id": "vectors", "url": "/v1/embeddings", "body": {"input": ["a", "b"]}});
    let files = Files::new("batch-own", [bad, vectors, question(1)].into_iter());
    let output = run(&files.arguments(&["omnibus-mini"]));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let results = files.results();
    assert_eq!(results["bad"]["response"]["status_code"], 400);
    assert_eq!(results["vectors"]["response"]["body"]["data"].as_array().unwrap().len(), 2);
    assert_eq!(results["line-1"]["response"]["status_code"], 200);
    assert!(text(&output.stderr).contains("2 of 3 lines answered, 1 failed"), "{}", text(&output.stderr));
    // A failed line is not repeated, and stays a failure.
    let again = run(&files.arguments(&[]));
    assert_eq!(again.status.code(), Some(1), "{}", text(&again.stderr));
    let summary = "0 of 3 lines answered, 1 failed, 3 were there, 1 of them failed";
    assert!(text(&again.stderr).contains(summary), "{}", text(&again.stderr));
    assert_eq!(files.results().len(), 3);
}

#[test]
fn wrong_usage_and_wrong_files_are_named() {
    let output = run(&["batch", "-i", "x"]);
    assert_eq!(output.status.code(), Some(2));
    let files = Files::new("batch-bad", [question(1), question(1)].into_iter());
    let output = run(&files.arguments(&[]));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("in.jsonl:2: the custom_id `line-1` is there twice"));
    assert!(!files.output.exists());
}
