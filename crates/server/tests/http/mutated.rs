//! Mutated requests to every `POST` route: none is answered with 500, and none makes the server panic.
//!
//! `OMNIBUS_FUZZ_REQUESTS` sets how many, `OMNIBUS_FUZZ_FIRST` the first case.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::mutate::{self, Rng};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use omnibus_server::{App, Settings, router};
use serde_json::Value;
use tower::ServiceExt;

use super::scripted::ScriptedEngine;

/// A route and a valid body.
const REQUESTS: &[(&str, &str)] = &[
    (
        "/v1/chat/completions",
        r#"{"model":"scripted","messages":[{"role":"system","content":"s"},{"role":"user","name":"n","content":[{"type":"text","text":"a b"}]},
        {"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":[1,2]}"}}]},
        {"role":"tool","tool_call_id":"1","content":"3"}],"max_tokens":2,"temperature":0.5,"top_p":0.9,"seed":1,"n":2,"stop":["x"],
        "tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"array"}}}}}],
        "logprobs":true,"top_logprobs":2,"stream":true,"stream_options":{"include_usage":true},"logit_bias":{"3":-1},
        "chat_template_kwargs":{"enable_thinking":false},"documents":[{"title":"t"}],"response_format":{"type":"text"}}"#,
    ),
    (
        "/v1/chat/completions",
        r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true,
        "add_generation_prompt":false,"max_completion_tokens":1,"user":"u","metadata":{"k":"v"},"session_id":"s","cache_salt":"c"}"#,
    ),
    (
        "/v1/completions",
        r#"{"model":"alias/one","prompt":["a b","c"],"max_tokens":2,"temperature":1,"echo":true,"logprobs":3,"n":2,"best_of":2,"stop":"z",
        "presence_penalty":0.5,"frequency_penalty":-0.5,"repetition_penalty":1.1,"min_p":0.1,"top_k":4,"ignore_eos":true,"priority":1}"#,
    ),
    (
        "/v1/completions",
        r#"{"prompt":[[1,2,3],[4]],"max_tokens":1,"stream":true,"seed":-1,"stop_token_ids":[2]}"#,
    ),
    (
        "/tokenize",
        r#"{"model":"scripted","prompt":"a b c","add_special_tokens":true,"return_token_strs":true}"#,
    ),
    ("/tokenize", r#"{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":true,"tools":[]}"#),
    ("/detokenize", r#"{"model":"scripted","tokens":[1,2,3]}"#),
    (
        "/api/chat",
        r#"{"model":"scripted:latest","messages":[{"role":"system","content":"s"},{"role":"user","content":"a b"},
        {"role":"assistant","content":"","thinking":"t","tool_calls":[{"id":"1","function":{"name":"f","arguments":{"a":[1,2]}}}]},
        {"role":"tool","tool_name":"f","content":"3"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],
        "options":{"num_predict":2,"temperature":0.5,"top_k":3,"top_p":0.9,"seed":1,"stop":["x"],"num_ctx":64,"repeat_last_n":-1},
        "format":"json","think":"high","keep_alive":"5m","stream":false,"logprobs":true,"top_logprobs":2}"#,
    ),
    (
        "/api/generate",
        r#"{"model":"scripted","prompt":"a b","suffix":"","system":"s","context":[1,2],"raw":false,"images":[],"keep_alive":-1,
        "format":{"type":"object"},"options":{"num_predict":1}}"#,
    ),
    ("/api/show", r#"{"model":"scripted","verbose":true}"#),
    ("/api/pull", r#"{"name":"scripted","stream":true}"#),
];

/// What a request may be answered with.
const STATUSES: &[u16] = &[200, 400, 404, 413, 415, 422, 429];

fn body(rng: &mut Rng, valid: &str) -> Vec<u8> {
    let mut document: Value = serde_json::from_str(valid).unwrap();
    for _ in 0..rng.below(4) {
        mutate::json(rng, &mut document);
    }
    let mut body = serde_json::to_vec(&document).unwrap();
    if rng.below(3) == 0 {
        mutate::bytes(rng, &mut body);
    }
    body
}

async fn answer(router: Router, path: &str, body: Vec<u8>) -> (StatusCode, Bytes) {
    let request =
        Request::post(path).header("content-type", "application/json").body(Body::from(body)).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    // A stream that waits for more tokens does not end by itself.
    let body = tokio::time::timeout(Duration::from_secs(20), response.into_body().collect()).await;
    (status, body.expect("the response ends").unwrap().to_bytes())
}

#[test]
fn mutated_requests_are_answered_or_refused() {
    let (recorder, _events) = channel();
    let app = Arc::new(App::new(Arc::new(ScriptedEngine::new(recorder)), &Settings::default()));
    let router = router(app);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut accepted = 0;
    let cases = mutate::cases("OMNIBUS_FUZZ_REQUESTS", 2_000);
    for case in cases.clone() {
        let rng = &mut Rng::new(case);
        let (path, valid) = *rng.pick(REQUESTS);
        let body = body(rng, valid);
        let shown = String::from_utf8_lossy(&body).into_owned();
        let (status, answer) = runtime.block_on(answer(router.clone(), path, body));
        let text = String::from_utf8_lossy(&answer);
        assert!(STATUSES.contains(&status.as_u16()), "case {case}: {path} {shown}\n{status} {text}");
        if status == StatusCode::OK {
            accepted += 1;
        } else {
            let error: Value = serde_json::from_slice(&answer).unwrap();
            let message = error["error"]["message"].as_str().or(error["error"].as_str()).unwrap_or_default();
            assert!(!message.is_empty(), "case {case}: {path} {shown}\n{status} {text}");
        }
    }
    println!("{} mutated requests, {accepted} accepted", cases.count());
    assert!(accepted > 0);
}
