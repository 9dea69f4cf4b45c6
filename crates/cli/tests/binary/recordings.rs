//! Recorded requests of real clients: each is answered, and the next request of a conversation finds the prompt of the
//! one before it in the prefix cache.

#![allow(clippy::print_stdout, reason = "says what is skipped")]

use std::path::Path;

use omnibus_testing::reference::{RECORDED_REQUESTS, found};
use serde_json::{Value, json};

use super::client::post;
use super::process::Server;
use super::scripted_model::server;

/// Two requests of one conversation, by their places in a recording.
const CONTINUED: &[(&str, usize, usize)] = &[
    ("ai-sdk-6.0.326", 0, 1),
    ("ai-sdk-6.0.326", 4, 5),
    ("ai-sdk-6.0.326", 8, 9),
    ("claude-code-2.0.76-print", 0, 3),
    ("claude-code-2.1.197-print", 1, 2),
    ("claude-code-2.1.330-bare", 0, 1),
    ("claude-code-2.1.330-no-experimental-betas", 0, 1),
    ("claude-code-2.1.330-print", 0, 1),
    ("claude-code-2.1.330-print", 1, 2),
    ("claude-code-2.1.330-print", 2, 3),
    ("claude-code-2.1.330-subagent", 1, 2),
    // A deferred tool comes into the middle of the list of tools.
    ("claude-code-2.1.330-tool-search", 0, 1),
    ("claude-code-2.1.330-tool-search", 1, 2),
    ("claude-code-2.1.330-tui", 2, 3),
    ("claude-code-2.1.330-tui", 3, 4),
    ("codex-0.169.0", 0, 1),
    ("codex-0.169.0", 1, 2),
    ("codex-0.169.0-known-model", 0, 1),
    ("langchain-openai-1.7.3", 0, 1),
    ("langchain-openai-1.7.3", 4, 5),
    ("litellm-1.106.2", 0, 1),
    ("litellm-1.106.2", 4, 5),
    ("llama-index-openai-like-0.8.1", 0, 1),
    ("openai-agents-0.20.0", 0, 1),
    ("openai-agents-0.20.0", 4, 5),
    ("opencode-1.18.33", 1, 2),
    ("opencode-1.18.33", 2, 3),
    ("opencode-1.18.33-other-wires", 0, 1),
    ("opencode-1.18.33-other-wires", 2, 3),
    ("qwen-code-0.15.10", 0, 1),
    ("qwen-code-0.15.10", 1, 2),
    // Its next turn moves a block of the user message, which changes the text itself.
    ("qwen-code-0.24.4", 0, 1),
    ("qwen-code-0.24.4", 2, 3),
];

const CONTINUED_SAMPLE: &[(&str, usize, usize)] = &[("sample", 0, 1), ("sample", 2, 3), ("sample", 4, 5)];

/// The prompt ends with the start of the answer, which the history writes differently: at most this many tokens.
const ANSWER_START_TOKENS: u64 = 12;

/// The requests of a recording: path and body.
fn requests(file: &Path) -> Vec<Option<(String, Value)>> {
    let recording: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let request = |request: &Value| {
        let mut body = Value::Object(request["body"].as_object()?.clone());
        for tool in body["tools"].as_array_mut().into_iter().flatten() {
            // Long texts are shortened in recordings, and no grammar begins so.
            if let Some(text) = tool.pointer_mut("/format/definition").filter(|text| is_shortened(text)) {
                *text = json!("start: /(.|\\n)*/");
            }
        }
        restore_images(&mut body);
        Some((request["path"].as_str()?.to_owned(), body))
    };
    recording["requests"].as_array().unwrap().iter().map(request).collect()
}

/// Puts an image in the place of one that the recording shortened. The served model gets a note for it.
fn restore_images(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(restore_images),
        Value::Object(fields) => {
            for (name, image) in [("image_url", "data:image/png;base64,AAAA"), ("data", "AAAA")] {
                if let Some(shortened) = fields.get_mut(name).filter(|text| is_shortened(text)) {
                    *shortened = json!(image);
                }
            }
            fields.values_mut().for_each(restore_images);
        }
        _ => {}
    }
}

fn is_shortened(text: &Value) -> bool {
    text.as_str().is_some_and(|text| text.starts_with('…'))
}

/// A short answer as one JSON object, of the served model.
fn shortened(path: &str, mut body: Value) -> Value {
    let fields = body.as_object_mut().unwrap();
    fields.remove("stream_options");
    fields.insert("stream".into(), false.into());
    fields.remove("output_config");
    let limit = if path.contains("responses") { "max_output_tokens" } else { "max_tokens" };
    if !path.contains("count_tokens") {
        fields.insert(limit.into(), 2.into());
    }
    if path.contains("chat") {
        fields.remove("model");
    }
    body
}

/// Tokens of the prompt, and those of them that were cached.
fn ask(server: &Server, path: &str, body: Value, what: &str) -> (u64, u64) {
    let reply = post(server.address, path, &shortened(path, body).to_string());
    assert_eq!(reply.status, 200, "{what}: {}", reply.body);
    let usage = reply.json()["usage"].clone();
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    match (count("/prompt_tokens"), count("/cache_read_input_tokens")) {
        (Some(prompt), _) => (prompt, count("/prompt_tokens_details/cached_tokens").unwrap()),
        (None, Some(cached)) => (count("/input_tokens").unwrap() + cached, cached),
        (None, None) => {
            let prompt = count("/input_tokens").unwrap_or_default();
            (prompt, count("/input_tokens_details/cached_tokens").unwrap_or_default())
        }
    }
}

#[test]
fn every_recorded_request_is_answered() {
    let server = server("recordings", &[]);
    for found in found(RECORDED_REQUESTS) {
        let mut answered = 0;
        for file in found.files(".json") {
            for (index, request) in requests(&file).into_iter().enumerate() {
                let Some((path, body)) = request else { continue };
                ask(&server, &path, body, &format!("{} {index}", file.display()));
                answered += 1;
            }
        }
        found.assert_count(answered, 91);
    }
}

#[test]
fn the_next_request_of_a_conversation_finds_the_last_prompt_cached() {
    let mut lost = Vec::new();
    let server = server("cached", &[]);
    let conversations = found(RECORDED_REQUESTS).flat_map(|found| {
        let continued = if found.is_whole() { CONTINUED } else { CONTINUED_SAMPLE };
        continued.iter().map(move |(name, first, second)| {
            (found.folder().join(format!("{name}.json")), name, first, second)
        })
    });
    for (index, (file, name, first, second)) in conversations.enumerate() {
        let requests = requests(&file);
        let [one, two] = [first, second].map(|at| requests[*at].clone().unwrap());
        // A salt of its own: recordings of one client share their beginning.
        let salted = |(path, mut body): (String, Value)| {
            let mark = json!(format!("conversation {index}"));
            match path.as_str() {
                path if path.contains("chat") => body["cache_salt"] = mark,
                path if path.contains("responses") => body["instructions"] = mark,
                _ => {
                    body["system"] = json!([{"type": "text", "text": mark}, {"type": "text", "text": body["system"].to_string()}])
                }
            }
            (path, body)
        };
        // The billing header is inside of the system text here, so it must not be changed by the salt.
        let billing = |(path, body): (String, Value)| (path, without_billing(body));
        let (one, two) = (salted(billing(one)), salted(billing(two)));
        let (prompt, _) = ask(&server, &one.0, one.1, name);
        let (_, cached) = ask(&server, &two.0, two.1, name);
        let shared = prompt.saturating_sub(ANSWER_START_TOKENS);
        let share = cached as f64 / shared as f64;
        println!("{name} {first} to {second}: {cached} of {shared} tokens, {share:.3}");
        if share < 0.98 {
            lost.push(format!("{name} {first} to {second}: {cached} of {shared}"));
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

/// The body without the block that the server leaves out; a unit test of the lowering covers that.
fn without_billing(mut body: Value) -> Value {
    if let Some(system) = body["system"].as_array_mut() {
        system.retain(|block| !block["text"].as_str().unwrap_or_default().starts_with("x-anthropic-billing"));
        system.iter_mut().for_each(|block| _ = block.as_object_mut().unwrap().remove("cache_control"));
    }
    body
}
