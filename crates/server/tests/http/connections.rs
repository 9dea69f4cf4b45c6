//! Clients that disconnect, stall, or send invalid HTTP; cancellation and shutdown.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use super::client::{JSON, connect, exchange, get, parse, post, request, send_and_leave};
use super::refusals::check_works;
use super::scripted::RequestEvent;
use super::{server, server_with, server_with_keys};
use omnibus_server::{Limits, Settings};

const CHAT: &str = "/v1/chat/completions";

fn body(word: &str, fields: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"{word}"}}]{fields}}}"#)
}

fn chat(word: &str, fields: &str) -> Vec<u8> {
    request("POST", CHAT, &[JSON], body(word, fields).as_bytes())
}

#[test]
fn a_disconnect_cancels_the_request() {
    let server = server();
    for (fields, read) in [("", 0), (r#","stream":true"#, 0), (r#","stream":true"#, 50)] {
        let bytes = chat("forever", fields);
        let mut stream = connect(server.address);
        stream.write_all(&bytes).unwrap();
        let id = server.submitted().id;
        stream.read_exact(&mut vec![0; read]).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
        assert_eq!(server.next_event(), RequestEvent::Dropped(id));
        check_works(server.address, "a disconnect");
        server.submitted();
    }
}

#[test]
fn a_disconnect_cancels_all_choices() {
    let server = server();
    let mut stream = connect(server.address);
    let prompt = r#"{"prompt":["forever","forever"],"n":1,"stream":true}"#;
    stream.write_all(&request("POST", "/v1/completions", &[JSON], prompt.as_bytes())).unwrap();
    let mut ids = [server.submitted().id, server.submitted().id].map(RequestEvent::Dropped);
    drop(stream);
    let mut dropped = [server.next_event(), server.next_event()];
    ids.sort_by_key(|event| format!("{event:?}"));
    dropped.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(dropped, ids);
}

#[test]
fn broken_connections_do_not_affect_other_requests() {
    let server = server();
    let good = chat("hi", "");
    let promised = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    let broken: [(&str, &[u8]); 7] = [
        ("nothing", b""),
        ("half a request line", b"POST /v1/ch"),
        ("half a head", &good[..60]),
        ("half a body", promised),
        ("a chunk without its end", b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nff\r\nab"),
        ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        ("noise", &[0xff; 300]),
    ];
    for (name, bytes) in broken {
        send_and_leave(server.address, bytes, 0);
        check_works(server.address, name);
    }
}

#[test]
fn bodies_that_arrive_are_bounded_together() {
    let room_wait = Duration::ZERO;
    let limits = Limits { body_bytes: 1 << 20, received_bytes: 1 << 20, room_wait, ..Limits::default() };
    let server = server_with(Settings { limits, ..Settings::default() });
    let large = || post(server.address, CHAT, &body(&"w ".repeat(300_000), ""));
    assert_eq!(large().error()["code"], "context_length_exceeded", "one at a time has room");
    // A body whose end does not come. One that arrives while another is read may be the one that is refused.
    let bytes = chat(&"w ".repeat(450_000), "");
    let beside_a_stalled_one = |_| {
        let mut stalled = connect(server.address);
        // One that is refused may be closed.
        let _sent = stalled.write_all(&bytes[..bytes.len() - 100_000]);
        (stalled, large())
    };
    let (stalled, refused) =
        (0..1_000).map(beside_a_stalled_one).find(|(_, reply)| reply.status == 429).unwrap();
    assert_eq!(refused.error()["code"], "busy", "{}", refused.body);
    assert_eq!(refused.header("retry-after"), Some("1"));
    check_works(server.address, "small requests beside it have room");
    drop(stalled);
    let answered = (0..1_000).map(|_| large()).find(|reply| reply.status != 429).unwrap();
    assert_eq!(answered.error()["code"], "context_length_exceeded");
}

#[test]
fn invalid_http_gets_a_4xx_or_no_response() {
    let server = server();
    let long_header =
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(1 << 20));
    let many_headers = format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "a: b\r\n".repeat(5000));
    let long_path = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(100_000));
    let odd: [(&str, &[u8]); 9] = [
        ("no version", b"GET /health\r\n\r\n"),
        ("a version of the future", b"GET /health HTTP/9.9\r\n\r\n"),
        ("two lengths", b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{\"a\":1}"),
        ("a negative length", b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n"),
        ("a length past all memory", b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999999\r\n\r\n"),
        ("a bad chunk", b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
        ("a long header", long_header.as_bytes()),
        ("many headers", many_headers.as_bytes()),
        ("a long path", long_path.as_bytes()),
    ];
    for (name, bytes) in odd {
        let status = exchange(server.address, bytes).map_or(400, |reply| reply.status);
        assert!((400..500).contains(&status), "{name}: {status}");
        check_works(server.address, name);
    }
}

#[test]
fn one_connection_serves_pipelined_requests() {
    let server = server();
    let one = |close: &str| {
        let body = body("hi", r#","max_tokens":1"#);
        format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{close}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let both = one("") + &one("connection: close\r\n");
    let mut stream = connect(server.address);
    stream.write_all(both.as_bytes()).unwrap();
    let mut responses = String::new();
    stream.read_to_string(&mut responses).unwrap();
    assert_eq!(responses.matches("HTTP/1.1 200 OK").count(), 2, "{responses}");
}

#[test]
fn a_client_that_does_not_read_does_not_block_others() {
    let server = server();
    let mut stalled = connect(server.address);
    stalled.write_all(&chat("hi", r#","max_tokens":4000,"stream":true"#)).unwrap();
    server.submitted();
    check_works(server.address, "a stalled client");
}

#[test]
fn a_tenant_lists_and_cancels_its_own_requests() {
    let server = server_with_keys(&["mine", "theirs"]);
    let mine = ("authorization", "Bearer mine");
    let theirs = ("authorization", "Bearer theirs");
    let named = ("x-request-id", "my-request");
    let mut stream = connect(server.address);
    let bytes = request("POST", CHAT, &[JSON, mine, named], body("forever", r#","stream":true"#).as_bytes());
    stream.write_all(&bytes).unwrap();
    let id = server.submitted().id;
    let ask = |method: &str, path: &str, key| {
        exchange(server.address, &request(method, path, &[key], b"")).unwrap()
    };
    let listed = ask("GET", "/v1/requests", mine).json();
    assert_eq!(
        (listed["data"][0]["id"].as_str(), listed["data"][0]["request_id"].as_str()),
        (Some(id.as_str()), Some("my-request"))
    );
    assert_eq!(ask("GET", "/v1/requests", theirs).json()["data"].as_array().unwrap().len(), 0);
    assert_eq!(ask("DELETE", "/v1/requests/my-request", theirs).status, 404);
    assert_eq!(ask("DELETE", "/v1/requests/my-request", mine).json()["cancelled"], 1);
    assert_eq!(server.next_event(), RequestEvent::Cancelled(id));
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let chunks = parse(&response).chunks();
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "cancelled");
    assert_eq!(ask("DELETE", "/v1/requests/my-request", mine).status, 404);
}

#[test]
fn a_shutdown_finishes_streams() {
    let mut server = server();
    let mut stream = connect(server.address);
    stream.write_all(&chat("forever", r#","stream":true"#)).unwrap();
    server.submitted();
    let mut begin = [0; 15];
    stream.read_exact(&mut begin).unwrap();
    server.join();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"finish_reason\":\"cancelled\"") && rest.contains("[DONE]"), "{rest}");
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn an_idle_server_stops_at_once() {
    let mut server = server();
    let idle = connect(server.address);
    assert_eq!(get(server.address, "/health").status, 200);
    assert_eq!(post(server.address, CHAT, &body("hi", "")).status, 200);
    server.join();
    drop(idle);
}

#[test]
fn a_tenant_lists_and_drops_its_own_sessions() {
    let server = server_with_keys(&["mine", "theirs"]);
    let ask = |method: &str, path: &str, key: &str| {
        let key = format!("Bearer {key}");
        exchange(server.address, &request(method, path, &[("authorization", &key)], b"")).unwrap()
    };
    let mine = ask("GET", "/v1/sessions", "mine").json()["data"][0].clone();
    let id = mine["id"].as_str().unwrap().to_owned();
    assert_eq!((mine["tokens"].as_u64(), mine["idle_seconds"].as_f64()), (Some(64), Some(1.5)));
    assert_ne!(ask("GET", "/v1/sessions", "theirs").json()["data"][0]["id"], mine["id"]);
    let path = format!("/v1/sessions/{}", id.replace(' ', "%20"));
    assert_eq!(ask("DELETE", &path, "theirs").status, 404);
    assert_eq!(ask("DELETE", &path, "mine").json()["deleted"], true);
    let stats = ask("GET", "/v1/cache/stats", "mine").json();
    assert_eq!(stats["misses_total"]["cold"], 0);
    assert_eq!(stats["hit_tokens_total"], 0);
}
