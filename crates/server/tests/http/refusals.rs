//! Responses to invalid requests, each followed by a valid one.

use std::net::SocketAddr;

use super::client::{exchange, post};
use super::hostile::{Case, cases};
use super::server;

const CHAT: &str = "/v1/chat/completions";

fn hi(word: &str, fields: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"{word}"}}]{fields}}}"#)
}

/// Checks that a valid request succeeds.
pub fn check_works(address: SocketAddr, after: &str) {
    let reply = post(address, CHAT, &hi("hi", r#","max_tokens":1"#));
    assert_eq!(reply.status, 200, "after {after}: {}", reply.body);
}

fn check_refused(address: SocketAddr, case: &Case) {
    let reply = exchange(address, &case.bytes).unwrap_or_else(|| panic!("no response to {}", case.name));
    assert_eq!(reply.status, case.status, "{}: {}", case.name, reply.body);
    let error = reply.error();
    for field in ["message", "type", "code"] {
        assert!(error[field].as_str().is_some_and(|text| !text.is_empty()), "{}: {error}", case.name);
    }
    assert!(error.as_object().unwrap().contains_key("param"), "{}: {error}", case.name);
    if let Some(param) = case.param {
        assert_eq!(error["param"], param, "{}: {error}", case.name);
    }
    assert!(reply.header("x-request-id").is_some(), "{}", case.name);
}

#[test]
fn hostile_requests_are_refused_by_name_and_the_next_succeeds() {
    let server = server();
    let cases = cases();
    assert!(cases.len() >= 200, "{} cases", cases.len());
    for case in &cases {
        check_refused(server.address, case);
        check_works(server.address, &case.name);
    }
}

#[test]
fn engine_failures_keep_their_status() {
    let server = server();
    for fields in ["", r#","stream":true"#] {
        let busy = post(server.address, CHAT, &hi("busy", fields));
        assert_eq!((busy.status, busy.header("retry-after")), (429, Some("3")), "{fields}");
        assert_eq!(post(server.address, CHAT, &hi("fail", fields)).status, 504, "{fields}");
        assert_eq!(post(server.address, CHAT, &hi("panic", fields)).status, 500, "{fields}");
        check_works(server.address, "a panic");
    }
    let long = post(server.address, CHAT, &hi("hi", r#","max_tokens":5000"#));
    assert_eq!((long.status, long.error()["code"].as_str()), (400, Some("context_length_exceeded")));
    assert_eq!(long.error()["param"], "messages");
}

#[test]
fn a_failure_after_the_first_byte_is_an_error_event() {
    let server = server();
    for word in ["break", "vanish"] {
        let reply = post(server.address, CHAT, &hi(word, r#","stream":true"#));
        assert_eq!(reply.status, 200);
        assert!(reply.body.contains("event: error\ndata: {\"error\":"), "{}", reply.body);
        assert_eq!(reply.events().last().map(String::as_str), Some("[DONE]"));
        assert_eq!(post(server.address, CHAT, &hi(word, "")).status, 500);
    }
}
