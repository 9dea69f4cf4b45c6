//! A third API, shaped like Anthropic's Messages: a wire module, a lowering and a framer, and nothing else.
//!
//! It shows that an API with named events, typed content blocks and its own error format needs no change in the
//! server's shared code. The server does not serve it.

mod framer;
mod lower;
mod wire;

use std::sync::Arc;
use std::sync::mpsc::channel;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::middleware::from_fn_with_state;
use axum::routing::post;
use expect_test::{Expect, expect};
use http_body_util::BodyExt;
use omnibus_server::{App, ErrorFormat, ErrorKind, Origin, RequestId, Settings, generate, render_errors};
use tower::ServiceExt;

use super::scripted::ScriptedEngine;
use lower::MessagesApi;

const FORMATS: &[ErrorFormat] =
    &[ErrorFormat { path: "/", render: framer::error_body, status: ErrorKind::status }];

async fn respond(body: &str) -> String {
    let (recorder, _events) = channel();
    let app = App::new(Arc::new(ScriptedEngine::new(recorder)), &Settings::default());
    let router = Router::new()
        .route("/v1/messages", post(generate::<MessagesApi>))
        .layer(from_fn_with_state(FORMATS, render_errors))
        .with_state(Arc::new(app));
    let request = Request::post("/v1/messages").header("content-type", "application/json");
    let response = router.oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    format!("{status}\n{}", String::from_utf8_lossy(&bytes))
}

#[test]
fn a_body_without_a_connection_gets_the_whole_response() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let body = r#"{"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
    let over_http = runtime.block_on(respond(body));
    let (recorder, _events) = channel();
    let app = Arc::new(App::new(Arc::new(ScriptedEngine::new(recorder)), &Settings::default()));
    let origin = |tenant: &str| Origin::new(RequestId::default(), tenant.to_owned());
    // Whether the body wants a stream does not matter.
    for body in [body.to_owned(), body.replace("\"max_tokens\"", "\"stream\":true,\"max_tokens\"")] {
        let body = serde_json::from_str(&body).unwrap();
        let whole =
            runtime.block_on(omnibus_server::respond::<MessagesApi>(&app, body, origin("a"))).unwrap();
        assert_eq!(format!("200\n{}", whole.into_text()), over_http);
    }
    let refused = runtime.block_on(omnibus_server::respond::<MessagesApi>(&app, "{}".into(), origin("a")));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

fn check(body: &str, expected: Expect) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    expected.assert_eq(runtime.block_on(respond(body)).trim_end());
}

#[test]
fn typed_deltas_become_named_events() {
    check(
        r#"{"model":"scripted","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"tools"}]}"#,
        expect![[r#"
            200
            event: message_start
            data: {"type":"message_start","message":{"id":"ID","role":"assistant","model":"scripted","content":[],"stop_reason":null,"usage":{"input_tokens":0,"cache_read_input_tokens":1,"output_tokens":0}}}

            event: content_block_start
            data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}

            event: content_block_delta
            data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

            event: content_block_stop
            data: {"type":"content_block_stop","index":0}

            event: content_block_start
            data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

            event: content_block_delta
            data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"calling"}}

            event: content_block_stop
            data: {"type":"content_block_stop","index":1}

            event: content_block_start
            data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call-1","name":"f","input":{}}}

            event: content_block_delta
            data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}

            event: content_block_delta
            data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}

            event: content_block_stop
            data: {"type":"content_block_stop","index":2}

            event: message_delta
            data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}

            event: message_stop
            data: {"type":"message_stop"}"#]],
    );
}

#[test]
fn a_full_response_has_the_same_blocks() {
    check(
        r#"{"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":"tools"}]}"#,
        expect![[r#"
            200
            {"id":"ID","role":"assistant","model":"scripted","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"calling"},{"type":"tool_use","id":"call-1","name":"f","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":0,"cache_read_input_tokens":1,"output_tokens":9}}"#]],
    );
}

#[test]
fn errors_have_the_apis_own_format() {
    check(
        r#"{"max_tokens":1,"messages":[{"role":"user","content":"hi"}],"extra":1}"#,
        expect![[r#"
        400
        {"type":"error","error":{"type":"invalid_request_error","message":"unknown field `extra`"}}"#]],
    );
    check(
        r#"{"max_tokens":1,"messages":[{"role":"user","content":"busy"}]}"#,
        expect![[r#"
        429
        {"type":"error","error":{"type":"rate_limit_error","message":"the queue is full; retry in 3 s"}}"#]],
    );
    check(
        r#"{"max_tokens":1,"stream":true,"messages":[{"role":"user","content":"break"}]}"#,
        expect![[r#"
            200
            event: message_start
            data: {"type":"message_start","message":{"id":"ID","role":"assistant","model":"scripted","content":[],"stop_reason":null,"usage":{"input_tokens":0,"cache_read_input_tokens":1,"output_tokens":0}}}

            event: content_block_start
            data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

            event: content_block_delta
            data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"w0 "}}

            event: error
            data: {"type":"error","error":{"type":"api_error","message":"the engine failed: broke"}}"#]],
    );
}
