//! Anthropic's routes with a scripted engine: events, errors and limits.

use std::io::{Read, Write};
use std::time::Duration;

use expect_test::{Expect, expect};
use omnibus_server::{ModelNames, Settings};
use serde_json::{Value, json};

use super::client::{JSON, Reply, connect, exchange, get, post, request};
use super::{server, server_with};

const PATH: &str = "/v1/messages?beta=true";

fn body(word: &str, fields: Value) -> String {
    let mut body = json!({"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": word}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

/// The body with its ids replaced.
fn check(reply: &Reply, expected: Expect) {
    let text = match reply.body.find("msg_") {
        Some(at) => reply.body.replace(&reply.body[at..at + 36], "ID"),
        None => reply.body.clone(),
    };
    let text = text.replace(reply.header("request-id").unwrap(), "REQUEST");
    expected.assert_eq(&format!("{}\n{}", reply.status, text.trim_end()));
}

#[test]
fn a_stream_has_every_event_in_order() {
    let server = server();
    check(
        &post(server.address, PATH, &body("tools", json!({"stream": true}))),
        expect![[r#"
        200
        event: message_start
        data: {"type":"message_start","message":{"id":"ID","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":0}}}

        event: ping
        data: {"type":"ping"}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"omnibus1.aG0"}}

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
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":9}}

        event: message_stop
        data: {"type":"message_stop"}"#]],
    );
    check(
        &post(
            server.address,
            PATH,
            &body("tools", json!({"stream": true, "thinking": {"type": "adaptive", "display": "omitted"}})),
        ),
        expect![[r#"
            200
            event: message_start
            data: {"type":"message_start","message":{"id":"ID","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":0}}}

            event: ping
            data: {"type":"ping"}

            event: content_block_start
            data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

            event: content_block_delta
            data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"omnibus1.aG0"}}

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
            data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":9}}

            event: message_stop
            data: {"type":"message_stop"}"#]],
    );
}

#[test]
fn a_full_message_has_the_same_blocks() {
    let server = server();
    check(
        &post(server.address, PATH, &body("tools", json!({}))),
        expect![[r#"
        200
        {"id":"ID","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"thinking","thinking":"hm","signature":"omnibus1.aG0"},{"type":"text","text":"calling"},{"type":"tool_use","id":"call-1","name":"f","input":{"a":1}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":9}}"#]],
    );
    check(
        &post(server.address, PATH, &body("hi", json!({"max_tokens": 2}))),
        expect![[r#"
        200
        {"id":"ID","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"text","text":"w0 w1 "}],"stop_reason":"max_tokens","stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":2}}"#]],
    );
}

#[test]
fn errors_have_anthropics_shape_and_words() {
    let server = server();
    check(
        &post(server.address, PATH, "{"),
        expect![[r#"
        400
        {"type":"error","error":{"type":"invalid_request_error","message":"the body is not valid JSON: EOF while parsing an object at line 1 column 1"},"request_id":"REQUEST"}"#]],
    );
    check(
        &post(server.address, PATH, &body("hi", json!({"max_tokens": 0}))),
        expect![[r#"
        400
        {"type":"error","error":{"type":"invalid_request_error","message":"`max_tokens` must be between 1 and 2147483647, not 0"},"request_id":"REQUEST"}"#]],
    );
    let busy = post(server.address, PATH, &body("busy", json!({})));
    assert_eq!(busy.header("retry-after"), Some("3"));
    check(
        &busy,
        expect![[r#"
        429
        {"type":"error","error":{"type":"rate_limit_error","message":"the queue is full; retry in 3 s"},"request_id":"REQUEST"}"#]],
    );
    check(
        &post(server.address, PATH, &body("hi", json!({"max_tokens": 5000}))),
        expect![[r#"
        400
        {"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 1 + 5000 > 4096, decrease input length or `max_tokens` and try again"},"request_id":"REQUEST"}"#]],
    );
    let long = "word ".repeat(5000);
    check(
        &post(server.address, PATH, &body(&long, json!({}))),
        expect![[r#"
        400
        {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 5000 tokens > 4096 maximum"},"request_id":"REQUEST"}"#]],
    );
    check(
        &post(server.address, PATH, &body("break", json!({"stream": true}))),
        expect![[r#"
        200
        event: message_start
        data: {"type":"message_start","message":{"id":"ID","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":0}}}

        event: ping
        data: {"type":"ping"}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"w0 "}}

        event: error
        data: {"type":"error","error":{"type":"api_error","message":"the engine failed: broke"},"request_id":"REQUEST"}"#]],
    );
    check(
        &get(server.address, "/v1/messages"),
        expect![[r#"
        405
        {"type":"error","error":{"type":"invalid_request_error","message":"the route /v1/messages has no method GET"},"request_id":"REQUEST"}"#]],
    );
}

#[test]
fn any_model_name_is_served_unless_names_are_strict() {
    let strict = server_with(Settings { model_names: ModelNames::Strict, ..Settings::default() });
    check(
        &post(strict.address, PATH, &body("hi", json!({}))),
        expect![[r#"
        404
        {"type":"error","error":{"type":"not_found_error","message":"the model `claude-haiku-4-5` is not served here; served: `scripted`, `alias/one`"},"request_id":"REQUEST"}"#]],
    );
    let named = post(strict.address, PATH, &body("hi", json!({"model": "alias/one"})));
    assert_eq!((named.status, &named.json()["model"]), (200, &json!("alias/one")));
}

#[test]
fn counted_tokens_are_those_that_are_billed() {
    let server = server();
    let counted = post(
        server.address,
        "/v1/messages/count_tokens?beta=true",
        &body("one two three", json!({"max_tokens": null})),
    );
    let billed = post(server.address, PATH, &body("one two three", json!({})));
    let usage = billed.json()["usage"].clone();
    let sum = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
        .map(|kind| usage[kind].as_u64().unwrap())
        .iter()
        .sum::<u64>();
    assert_eq!(counted.json(), json!({"input_tokens": sum}));
}

#[test]
fn a_silent_stream_pings() {
    let server = server_with(Settings { keep_alive: Duration::from_millis(5), ..Settings::default() });
    let mut stream = connect(server.address);
    let body = body("forever", json!({"stream": true}));
    stream.write_all(&request("POST", PATH, &[JSON], body.as_bytes())).unwrap();
    let (mut text, mut chunk) = (String::new(), [0; 1024]);
    while text.matches("event: ping").count() < 4 {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..count]));
    }
    let first = text.find("event: message_start").unwrap();
    assert!(first < text.find("event: ping").unwrap(), "{text}");
}

#[test]
fn a_clients_hello_is_answered() {
    let server = server();
    for path in ["/", "/api/hello"] {
        let reply = exchange(server.address, &request("HEAD", path, &[], b"")).unwrap();
        assert_eq!(reply.status, 200, "{path}");
    }
}
