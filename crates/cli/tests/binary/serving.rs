//! The server with the real engine.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};

use serde_json::{Value, json};

use super::client::{JSON, Reply, connect, exchange, get, post, request};
use super::hostile::{cases, grammars};
use super::process::Server;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn ask(address: SocketAddr, path: &str, body: &Value) -> Reply {
    let reply = post(address, path, &body.to_string());
    assert_eq!(reply.status, 200, "{body}: {}", reply.body);
    reply
}

fn chat(address: SocketAddr, fields: Value) -> Value {
    ask(
        address,
        CHAT,
        &with(json!({"messages": [{"role": "user", "content": "What is two plus two?"}]}), fields),
    )
    .json()
}

fn text(address: SocketAddr, fields: Value) -> Value {
    ask(address, TEXT, &fields).json()
}

fn with(mut body: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn content(response: &Value) -> String {
    response["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

#[test]
fn hostile_requests_are_refused_by_name_and_the_next_succeeds() {
    let mut server = Server::start(&["--log", "error"]);
    for case in cases().into_iter().chain(grammars()) {
        let reply =
            exchange(server.address, &case.bytes).unwrap_or_else(|| panic!("no response to {}", case.name));
        assert_eq!(reply.status, case.status, "{}: {}", case.name, reply.body);
        if let Some(param) = case.param {
            assert_eq!(reply.error()["param"], param, "{}: {}", case.name, reply.body);
        }
        let after = post(server.address, TEXT, r#"{"prompt":"a","max_tokens":1}"#);
        assert_eq!(after.status, 200, "after {}: {}", case.name, after.body);
    }
    assert!(server.runs());
    assert_eq!(get(server.address, "/health").status, 200);
}

#[test]
fn the_printed_curl_line_works() {
    let server = Server::start(&["--log", "error"]);
    let line = server.startup_lines.last().unwrap();
    let (_, body) = line.split_once("-d '").unwrap();
    let reply = post(server.address, CHAT, body.trim_end_matches('\''));
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["model"], "omnibus-mini");
}

#[test]
fn streamed_and_full_responses_have_the_same_text() {
    let server = Server::start(&["--log", "error"]);
    let fields = json!({"temperature": 0, "max_tokens": 24});
    let whole = content(&chat(server.address, fields.clone()));
    let body = with(
        json!({"messages": [{"role": "user", "content": "What is two plus two?"}], "stream": true}),
        fields.clone(),
    );
    let chunks = ask(server.address, CHAT, &body).chunks();
    let streamed: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole, streamed);
    let again = chat(server.address, with(fields.clone(), json!({"n": 2})));
    assert_eq!(again["choices"][1]["message"]["content"], whole.as_str());
    let tokens =
        ask(server.address, "/tokenize", &json!({"messages": body["messages"]})).json()["tokens"].clone();
    let by_tokens = text(server.address, with(fields, json!({"prompt": tokens})));
    assert_eq!(by_tokens["choices"][0]["text"], whole.as_str());
}

#[test]
fn a_seed_is_reproducible_and_choices_differ() {
    let server = Server::start(&["--log", "error"]);
    let fields = json!({"prompt": "Once upon a time", "temperature": 1.5, "max_tokens": 24, "ignore_eos": true, "seed": 5, "n": 3});
    let texts = |response: Value| -> Vec<String> {
        response["choices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|choice| choice["text"].as_str().unwrap().to_owned())
            .collect()
    };
    let once = texts(text(server.address, fields.clone()));
    assert_eq!(once, texts(text(server.address, fields)));
    assert!(once[0] != once[1] && once[1] != once[2]);
}

#[test]
fn usage_counts_tokens_and_a_repeated_prompt_is_cached() {
    let server = Server::start(&["--log", "error"]);
    let prompt: String = (0..200).map(|number| format!("{number} ")).collect();
    let fields = json!({"prompt": prompt, "max_tokens": 3, "ignore_eos": true});
    let first = text(server.address, fields.clone());
    let second = text(server.address, fields);
    assert_eq!(first["usage"]["completion_tokens"], 3);
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert!(second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0);
    assert_eq!(second["choices"][0]["text"], first["choices"][0]["text"]);
}

#[test]
fn alternatives_are_bounded_by_the_setting() {
    let top = |count: i64| json!({"max_tokens": 2, "logprobs": true, "top_logprobs": count});
    let refused = |address: SocketAddr, count: i64| {
        let body =
            with(json!({"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}), top(count));
        let reply = post(address, CHAT, &body.to_string());
        (reply.status, reply.json()["error"]["param"].clone())
    };
    let server = Server::start(&["--log", "error"]);
    for count in [21, -1, -2] {
        assert_eq!(refused(server.address, count), (400, json!("top_logprobs")), "{count}");
    }
    let prompt = json!({"prompt": "one two", "max_tokens": 1});
    for field in ["logprobs", "prompt_logprobs"] {
        let reply = post(server.address, TEXT, &with(prompt.clone(), json!({field: 21})).to_string());
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(field)), "{}", reply.body);
    }
    let whole = Server::start(&["--log", "error", "--max-logprobs", "-1"]);
    let response = chat(whole.address, top(-1));
    for token in response["choices"][0]["logprobs"]["content"].as_array().unwrap() {
        let top: Vec<f64> = token["top_logprobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["logprob"].as_f64().unwrap())
            .collect();
        assert!(top.len() > 1000, "{} alternatives", top.len());
        let sum: f64 = top.iter().map(|logprob| logprob.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-3, "{sum}");
        assert!(top.is_sorted_by(|first, second| first >= second));
    }
}

#[test]
fn log_probabilities_match_the_text() {
    let server = Server::start(&["--log", "error"]);
    let response = text(
        server.address,
        json!({"prompt": "one two three", "max_tokens": 4, "temperature": 0, "logprobs": 3, "echo": true, "ignore_eos": true}),
    );
    let lists = &response["choices"][0]["logprobs"];
    let tokens = lists["tokens"].as_array().unwrap();
    let joined: String = tokens.iter().map(|token| token.as_str().unwrap()).collect();
    let text = response["choices"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("one two three"), "{response}");
    assert_eq!(text, joined);
    let probabilities = lists["token_logprobs"].as_array().unwrap();
    assert_eq!(probabilities.len(), tokens.len());
    assert!(probabilities[0].is_null(), "the first token has no log-probability");
    let best = |index: usize| {
        let top = lists["top_logprobs"][index].as_object().unwrap();
        top.values().filter_map(Value::as_f64).fold(f64::MIN, f64::max)
    };
    for (index, drawn) in probabilities.iter().enumerate().skip(tokens.len() - 4) {
        assert!(
            (drawn.as_f64().unwrap() - best(index)).abs() < 1e-4,
            "greedy sampling takes the most likely token"
        );
    }
    let chat =
        chat(server.address, json!({"max_tokens": 3, "logprobs": true, "top_logprobs": 2, "temperature": 0}));
    let content = chat["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert!(content.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2));
}

#[test]
fn a_completion_ends_before_its_stop_string() {
    let server = Server::start(&["--log", "error"]);
    let free = text(
        server.address,
        json!({"prompt": "one two three", "max_tokens": 24, "temperature": 0, "ignore_eos": true}),
    );
    let free = free["choices"][0]["text"].as_str().unwrap().to_owned();
    let stop: String = free.chars().skip(free.chars().count() / 2).take(3).collect();
    let fields = json!({"prompt": "one two three", "max_tokens": 24, "temperature": 0, "ignore_eos": true, "stop": stop});
    let stopped = text(server.address, fields);
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert_eq!(stopped["choices"][0]["text"], free.split(&stop).next().unwrap());
}

#[test]
fn tokenize_and_detokenize_are_inverse() {
    let server = Server::start(&["--log", "error"]);
    let prompt = "Grüße, 世界! 🚌";
    let tokenized =
        ask(server.address, "/tokenize", &json!({"prompt": prompt, "return_token_strs": true})).json();
    assert_eq!(tokenized["count"], tokenized["tokens"].as_array().unwrap().len());
    assert_eq!(tokenized["max_model_len"], 4096);
    let text = ask(server.address, "/detokenize", &json!({"tokens": tokenized["tokens"]})).json();
    assert_eq!(text["prompt"], prompt);
}

#[test]
fn a_prompt_is_tokenized_without_the_start_of_an_answer() {
    let server = Server::start(&["--log", "error"]);
    let tokens = |adds_prompt: bool| {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let body = json!({"messages": messages, "add_generation_prompt": adds_prompt});
        ask(server.address, "/tokenize", &body).json()["tokens"].as_array().unwrap().clone()
    };
    let (with, without) = (tokens(true), tokens(false));
    assert!(without.len() < with.len() && with.starts_with(&without), "{with:?} {without:?}");
}

#[test]
fn concurrent_clients_get_the_same_text_as_alone() {
    let server = Server::start(&["--log", "error"]);
    let address = server.address;
    let question = |number: usize| json!({"prompt": format!("number {number} and"), "max_tokens": 12, "temperature": 0, "ignore_eos": true});
    let alone: Vec<Value> =
        (0..12).map(|number| text(address, question(number))["choices"].clone()).collect();
    let threads =
        (0..12).map(|number| std::thread::spawn(move || text(address, question(number))["choices"].clone()));
    let together: Vec<Value> =
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(alone, together);
}

#[test]
fn a_disconnect_frees_the_requests_blocks() {
    let server = Server::start(&["--log", "error"]);
    let long = json!({"prompt": "a", "max_tokens": 3000, "ignore_eos": true, "stream": true}).to_string();
    let mut stream = connect(server.address);
    stream.write_all(&request("POST", TEXT, &[JSON], long.as_bytes())).unwrap();
    stream.read_exact(&mut [0; 200]).unwrap();
    let running = || get(server.address, "/v1/requests").json()["data"].as_array().unwrap().len();
    assert_eq!(running(), 1);
    stream.shutdown(Shutdown::Both).unwrap();
    while running() > 0 {
        std::thread::yield_now();
    }
    let stats = || get(server.address, "/v1/status").json()["engine"].clone();
    while stats()["running"] != 0 {
        std::thread::yield_now();
    }
    assert_eq!(stats()["kv_blocks_used"], 0);
}

#[test]
fn a_request_is_cancelled_by_its_id() {
    let server = Server::start(&["--log", "error"]);
    let long = json!({"prompt": "a", "max_tokens": 3000, "ignore_eos": true, "stream": true}).to_string();
    let mut stream = connect(server.address);
    stream.write_all(&request("POST", TEXT, &[JSON, ("x-request-id", "long-one")], long.as_bytes())).unwrap();
    stream.read_exact(&mut [0; 200]).unwrap();
    let reply = exchange(server.address, &request("DELETE", "/v1/requests/long-one", &[], b"")).unwrap();
    assert_eq!(reply.json()["cancelled"], 1, "{}", reply.body);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"finish_reason\":\"cancelled\"") && rest.contains("[DONE]"), "{rest}");
}

#[test]
fn a_full_queue_answers_429_with_retry_after() {
    let server = Server::start(&["--log", "error", "--max-queue", "1", "--max-num-seqs", "1"]);
    let long = json!({"prompt": "a", "max_tokens": 3000, "ignore_eos": true, "stream": true}).to_string();
    let hold = || {
        let mut stream = connect(server.address);
        stream.write_all(&request("POST", TEXT, &[JSON], long.as_bytes())).unwrap();
        stream
    };
    // The first request runs before the second is queued.
    let count = |what: &str| get(server.address, "/v1/status").json()["engine"][what].clone();
    let mut held = vec![hold()];
    while count("running") != 1 {
        std::thread::yield_now();
    }
    held.push(hold());
    // The second request is queued before the next is sent.
    while count("queued") != 1 {
        std::thread::yield_now();
    }
    let full = || post(server.address, TEXT, r#"{"prompt":"a","max_tokens":1}"#);
    let mut reply = full();
    while reply.status != 429 {
        reply = full();
    }
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(reply.error()["code"], "queue_full");
    drop(held);
    while full().status != 200 {}
}

#[test]
fn a_request_fails_after_its_timeout() {
    let server = Server::start(&["--log", "error", "--request-timeout", "0.05"]);
    let reply = post(server.address, TEXT, r#"{"prompt":"a","max_tokens":4000,"ignore_eos":true}"#);
    assert_eq!((reply.status, reply.error()["code"].as_str()), (504, Some("timeout")), "{}", reply.body);
    assert_eq!(reply.error()["message"], "the request timed out after 0.05 s");
}

#[test]
fn models_lists_the_served_names_and_metrics_are_exported() {
    let server =
        Server::start(&["--log", "error", "--served-model-name", "one", "--served-model-name", "two"]);
    let models = get(server.address, "/v1/models").json();
    assert_eq!(
        (models["data"][0]["id"].as_str(), models["data"][1]["id"].as_str()),
        (Some("one"), Some("two"))
    );
    assert_eq!(models["data"][0]["architecture"], "qwen3");
    text(server.address, json!({"model": "two", "prompt": "a", "max_tokens": 2, "ignore_eos": true}));
    let metrics = get(server.address, "/metrics").body;
    for name in [
        "omnibus_ttft_seconds_count",
        "omnibus_e2e_seconds_sum",
        "omnibus_kv_blocks_total",
        "omnibus_memory_peak_bytes",
        "omnibus_steps_total",
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
}
