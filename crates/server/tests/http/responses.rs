//! Responses to valid requests.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::client::{JSON, Reply, exchange, get, post, request};
use super::{server, server_with_keys};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// Replaces the fields that vary from run to run.
fn normalized(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        for (key, replacement) in [("id", json!("ID")), ("created", json!(0))] {
            if object.contains_key(key) {
                object.insert(key.into(), replacement);
            }
        }
        object.remove("system_fingerprint");
    }
    value
}

fn check(reply: &Reply, expected: Expect) {
    expected.assert_eq(&format!("{} {}", reply.status, normalized(reply.json())));
}

fn check_stream(reply: &Reply, expected: Expect) {
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let chunks: Vec<String> = reply.chunks().into_iter().map(|chunk| normalized(chunk).to_string()).collect();
    expected.assert_eq(&chunks.join("\n"));
}

fn hi(fields: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"hi you"}}],"max_tokens":2{fields}}}"#)
}

#[test]
fn chat_responses_are_full_or_streamed() {
    let server = server();
    check(
        &post(server.address, CHAT, &hi("")),
        expect![[
            r#"200 {"id":"ID","object":"chat.completion","created":0,"model":"scripted","choices":[{"index":0,"message":{"role":"assistant","content":"w0 w1 ","refusal":null},"logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}"#
        ]],
    );
    check_stream(
        &post(server.address, CHAT, &hi(r#","stream":true"#)),
        expect![[r#"
        {"id":"ID","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}
        {"id":"ID","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[{"index":0,"delta":{"content":"w0 "},"logprobs":null,"finish_reason":null}]}
        {"id":"ID","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[{"index":0,"delta":{"content":"w1 "},"logprobs":null,"finish_reason":null}]}
        {"id":"ID","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}"#]],
    );
    let usage = r#","stream":true,"stream_options":{"include_usage":true}"#;
    check_stream(
        &post(server.address, CHAT, &hi(usage)),
        expect![[r#"
            {"id":"ID","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}
            {"id":"ID","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[{"index":0,"delta":{"content":"w0 "},"logprobs":null,"finish_reason":null}],"usage":null}
            {"id":"ID","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[{"index":0,"delta":{"content":"w1 "},"logprobs":null,"finish_reason":null}],"usage":null}
            {"id":"ID","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null}
            {"id":"ID","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}"#]],
    );
}

#[test]
fn concatenated_chunks_equal_the_full_response() {
    let server = server();
    let whole = post(server.address, CHAT, &hi("")).json();
    let chunks = post(server.address, CHAT, &hi(r#","stream":true"#)).chunks();
    let text: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]));
}

#[test]
fn n_choices_are_n_requests_with_different_seeds() {
    let server = server();
    let reply = post(server.address, CHAT, &hi(r#","n":3,"seed":7"#));
    let indices: Vec<_> =
        reply.json()["choices"].as_array().unwrap().iter().map(|choice| choice["index"].clone()).collect();
    assert_eq!(indices, [0, 1, 2]);
    assert_eq!(reply.json()["usage"]["prompt_tokens"], 2, "a prompt is counted once");
    assert_eq!(reply.json()["usage"]["completion_tokens"], 6);
    let seen = [server.submitted(), server.submitted(), server.submitted()];
    assert!(seen.iter().all(|request| request.tokens == Some(2)), "a prompt is tokenized once");
    assert_eq!(seen[0].seed, Some(7));
    assert!(seen[1].seed != seen[2].seed && seen[1].seed != Some(7));
    let chunks = post(server.address, CHAT, &hi(r#","n":2,"stream":true"#)).chunks();
    let ends = |index: usize| {
        let of = |chunk: &&Value| {
            chunk["choices"][0]["index"] == index && !chunk["choices"][0]["finish_reason"].is_null()
        };
        chunks.iter().filter(of).count()
    };
    assert_eq!((ends(0), ends(1)), (1, 1));
}

#[test]
fn log_probabilities_have_each_apis_format() {
    let server = server();
    let chat =
        post(server.address, CHAT, &hi(r#","max_completion_tokens":2,"logprobs":true,"top_logprobs":1"#));
    check(
        &chat,
        expect![[
            r#"200 {"id":"ID","object":"chat.completion","created":0,"model":"scripted","choices":[{"index":0,"message":{"role":"assistant","content":"w0 w1 ","refusal":null},"logprobs":{"content":[{"token":"w0 ","logprob":-0.5,"bytes":[119,48,32],"top_logprobs":[{"token":"c0","logprob":-1.0,"bytes":[99,48]}]},{"token":"w1 ","logprob":-0.5,"bytes":[119,49,32],"top_logprobs":[{"token":"c0","logprob":-1.0,"bytes":[99,48]}]}],"refusal":null},"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}"#
        ]],
    );
    let text = r#"{"prompt":"a bc","max_tokens":1,"logprobs":1,"echo":true}"#;
    check(
        &post(server.address, TEXT, text),
        expect![[
            r#"200 {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"a bcw0 ","logprobs":{"tokens":["a ","bc","w0 "],"token_logprobs":[null,-0.5,-0.5],"top_logprobs":[null,{"bc":-0.5,"c0":-1.0},{"c0":-1.0,"w0 ":-0.5}],"text_offset":[0,2,4]},"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}"#
        ]],
    );
    let text = r#"{"prompt":"a bc","max_tokens":1,"logprobs":1,"echo":true,"stream":true}"#;
    check_stream(
        &post(server.address, TEXT, text),
        expect![[r#"
        {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"a bc","logprobs":{"tokens":["a ","bc"],"token_logprobs":[null,-0.5],"top_logprobs":[null,{"bc":-0.5,"c0":-1.0}],"text_offset":[0,2]},"finish_reason":null}]}
        {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"w0 ","logprobs":{"tokens":["w0 "],"token_logprobs":[-0.5],"top_logprobs":[{"c0":-1.0,"w0 ":-0.5}],"text_offset":[4]},"finish_reason":null}]}
        {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]}"#]],
    );
}

#[test]
fn prompts_are_text_or_tokens_or_several_of_either() {
    let server = server();
    check(
        &post(server.address, TEXT, r#"{"prompt":"once upon","max_tokens":1}"#),
        expect![[
            r#"200 {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"w0 ","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}"#
        ]],
    );
    check(
        &post(server.address, TEXT, r#"{"prompt":[1,2,3],"max_tokens":1,"echo":true}"#),
        expect![[
            r#"200 {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"t1 t2 t3 w0 ","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}"#
        ]],
    );
    check(
        &post(server.address, TEXT, r#"{"prompt":["a","b c"],"max_tokens":1,"n":2}"#),
        expect![[
            r#"200 {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"w0 ","logprobs":null,"finish_reason":"length"},{"index":1,"text":"w0 ","logprobs":null,"finish_reason":"length"},{"index":2,"text":"w0 ","logprobs":null,"finish_reason":"length"},{"index":3,"text":"w0 ","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}"#
        ]],
    );
    check_stream(
        &post(server.address, TEXT, r#"{"prompt":"x","max_tokens":1,"echo":true,"stream":true}"#),
        expect![[r#"
        {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"x","logprobs":null,"finish_reason":null}]}
        {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"w0 ","logprobs":null,"finish_reason":null}]}
        {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]}"#]],
    );
    check(
        &post(server.address, TEXT, r#"{"prompt":"x y","max_tokens":0,"echo":true}"#),
        expect![[
            r#"200 {"id":"ID","object":"text_completion","created":0,"model":"scripted","choices":[{"index":0,"text":"x y","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":0,"total_tokens":2,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}"#
        ]],
    );
}

#[test]
fn models_are_listed_once_per_served_name() {
    let server = server();
    check(
        &get(server.address, "/v1/models"),
        expect![[
            r#"200 {"object":"list","data":[{"id":"scripted","object":"model","created":1,"owned_by":"omnibus","root":"scripted","parent":null,"context_length":4096,"max_model_len":4096,"architecture":"script","quantization":null,"default_generation_settings":{"frequency_penalty":0.0,"min_p":0.0,"presence_penalty":0.0,"repetition_penalty":1.0,"temperature":1.0,"top_k":0.0,"top_p":1.0},"task":"generate","modalities":["text"],"chat_template_hash":"00000000000000000000000000000005","loaded":true},{"id":"alias/one","object":"model","created":1,"owned_by":"omnibus","root":"scripted","parent":null,"context_length":4096,"max_model_len":4096,"architecture":"script","quantization":null,"default_generation_settings":{"frequency_penalty":0.0,"min_p":0.0,"presence_penalty":0.0,"repetition_penalty":1.0,"temperature":1.0,"top_k":0.0,"top_p":1.0},"task":"generate","modalities":["text"],"chat_template_hash":"00000000000000000000000000000005","loaded":true}],"models":[{"name":"scripted","description":"script","release_date":"1970-01-01"},{"name":"alias/one","description":"script","release_date":"1970-01-01"}]}"#
        ]],
    );
    check(
        &get(server.address, "/v1/models/alias/one"),
        expect![[
            r#"200 {"id":"ID","object":"model","created":0,"owned_by":"omnibus","root":"scripted","parent":null,"context_length":4096,"max_model_len":4096,"architecture":"script","quantization":null,"default_generation_settings":{"frequency_penalty":0.0,"min_p":0.0,"presence_penalty":0.0,"repetition_penalty":1.0,"temperature":1.0,"top_k":0.0,"top_p":1.0},"task":"generate","modalities":["text"],"chat_template_hash":"00000000000000000000000000000005","loaded":true}"#
        ]],
    );
    check(
        &get(server.address, "/v1/models/alias%2Fone"),
        expect![[
            r#"200 {"id":"ID","object":"model","created":0,"owned_by":"omnibus","root":"scripted","parent":null,"context_length":4096,"max_model_len":4096,"architecture":"script","quantization":null,"default_generation_settings":{"frequency_penalty":0.0,"min_p":0.0,"presence_penalty":0.0,"repetition_penalty":1.0,"temperature":1.0,"top_k":0.0,"top_p":1.0},"task":"generate","modalities":["text"],"chat_template_hash":"00000000000000000000000000000005","loaded":true}"#
        ]],
    );
}

#[test]
fn tokenize_and_detokenize_return_tokens_and_text() {
    let server = server();
    check(
        &post(server.address, "/tokenize", r#"{"prompt":"a b"}"#),
        expect![[r#"200 {"count":2,"max_model_len":4096,"tokens":[314,315],"token_strs":null}"#]],
    );
    check(
        &post(
            server.address,
            "/tokenize",
            r#"{"messages":[{"role":"user","content":"a"}],"return_token_strs":true}"#,
        ),
        expect![[r#"200 {"count":1,"max_model_len":4096,"tokens":[314],"token_strs":["t314 "]}"#]],
    );
    check(
        &post(server.address, "/detokenize", r#"{"tokens":[1,2]}"#),
        expect![[r#"200 {"prompt":"t1 t2 "}"#]],
    );
    check(&post(server.address, "/detokenize", r#"{"tokens":[]}"#), expect![[r#"200 {"prompt":""}"#]]);
}

#[test]
fn health_and_status_report_the_engine() {
    let server = server();
    check(&get(server.address, "/health"), expect![[r#"200 {"status":"ok","detail":"scripted"}"#]]);
    check(&get(server.address, "/ready"), expect![[r#"200 {"status":"ready"}"#]]);
    assert_eq!(get(server.address, "/version").json()["name"], "mlx-omnibus");
    let status = get(server.address, "/v1/status").json();
    assert_eq!(status["alive"], true);
    // One flat object, whichever part counts.
    for name in [
        "running",
        "kv_blocks_used",
        "kv_blocks_total",
        "steps_total",
        "failed_steps_total",
        "generated_tokens_total",
        "handoffs_total",
        "sessions",
    ] {
        assert_eq!(status["engine"][name], 0, "{name} in {status}");
    }
    assert_eq!(status["engine"]["prefix_misses"]["cold"], 0);
    server.engine.die();
    let unhealthy = get(server.address, "/health");
    check(
        &unhealthy,
        expect![[
            r#"503 {"error":{"message":"the engine does not step: scripted","type":"server_error","param":null,"code":"unavailable"}}"#
        ]],
    );
    assert!(unhealthy.header("retry-after").is_some());
}

#[test]
fn metrics_count_requests_and_tokens() {
    let server = server();
    post(server.address, CHAT, &hi(""));
    post(server.address, CHAT, "{}");
    let text = get(server.address, "/metrics").body;
    for line in [
        r#"omnibus_requests_total{api="chat",outcome="length"}"#,
        r#"omnibus_requests_total{api="chat",outcome="invalid_value"}"#,
        r#"omnibus_ttft_seconds_bucket{api="chat","#,
        r#"omnibus_http_requests_total{route="/v1/chat/completions",method="POST",status="400"}"#,
        "omnibus_requests_running 0",
        "omnibus_generated_tokens_total",
        r#"omnibus_preemptions_total{kind="swap"} 0"#,
        r#"omnibus_preemptions_total{kind="recompute"} 0"#,
        "omnibus_swap_limit_bytes 0",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn every_response_has_a_request_id_the_clients_when_valid() {
    let server = server();
    let ask = |id: &str| {
        exchange(server.address, &request("GET", "/nowhere", &[("x-request-id", id)], b"")).unwrap()
    };
    assert_eq!(ask("mine-1").header("x-request-id"), Some("mine-1"));
    assert!(ask("not valid").header("x-request-id").unwrap().starts_with("req-"));
    assert!(get(server.address, "/health").header("x-request-id").unwrap().starts_with("req-"));
}

#[test]
fn all_routes_but_health_and_ready_need_a_key() {
    let server = server_with_keys(&["first-key", "second-key"]);
    let ask = |path: &str, headers: &[(&str, &str)]| {
        exchange(server.address, &request("GET", path, headers, b"")).unwrap().status
    };
    for path in ["/health", "/ready"] {
        assert_eq!(ask(path, &[]), 200);
    }
    for path in ["/v1/models", "/metrics", "/version", "/v1/status", "/v1/requests", "/nowhere", "/health/"] {
        assert_eq!(ask(path, &[]), 401, "{path}");
        assert_eq!(ask(path, &[("authorization", "Bearer first-ke")]), 401, "{path}");
        assert_eq!(ask(path, &[("authorization", "Basic first-key")]), 401, "{path}");
    }
    assert_eq!(ask("/v1/models", &[("authorization", "Bearer second-key")]), 200);
    assert_eq!(ask("/v1/models", &[("authorization", "bearer first-key")]), 200);
    assert_eq!(ask("/v1/models", &[("x-api-key", "first-key")]), 200);
    let key = ("authorization", "Bearer second-key");
    exchange(server.address, &request("POST", CHAT, &[JSON, key], hi("").as_bytes())).unwrap();
    assert_eq!(server.submitted().tenant, "key-2");
}
