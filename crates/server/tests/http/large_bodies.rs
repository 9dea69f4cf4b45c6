//! Many large bodies at once: they wait for each other, and what they take together is bounded.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use omnibus_server::{Limits, Settings, StoredResponses};
use serde_json::json;

use super::client::{JSON, connect, exchange, post, request};
use super::media::hostile_inputs::{is_alone, live};
use super::stream::Client;
use super::{Server, server_with};

const NAME: &str = "large_bodies::bodies_at_once_take_bounded_memory";
/// Bodies at once.
const COUNT: usize = 20;
const BODY_BYTES: usize = 4 << 20;
const RECEIVED_BYTES: usize = 8 << 20;
const READ_BYTES: usize = 16 << 20;
/// Bytes beside those of the rooms: buffers of connections, and what a body takes that is read alone.
const BESIDE_BYTES: usize = 16 << 20;
/// Bytes that may stay.
const STAY_BYTES: usize = 1 << 20;
const LOOKS: usize = 10_000_000;
/// Between two looks at the bytes in use: a body is received and read for longer.
const LOOK: Duration = Duration::from_micros(100);

fn limits() -> Limits {
    Limits {
        body_bytes: BODY_BYTES,
        received_bytes: RECEIVED_BYTES,
        read_bytes: READ_BYTES,
        room_wait: Duration::from_secs(1_000_000),
        ..Limits::default()
    }
}

/// The most bytes in use while something runs, beyond those before it, and how many stay: tasks may drop what they hold after their
/// clients have seen the end, so these are looked at up to [`LOOKS`] times.
fn peak_and_growth(run: impl FnOnce()) -> (usize, usize) {
    let before = live();
    let ended = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&ended);
    let watch = std::thread::spawn(move || {
        let mut peak = 0;
        while !watched.load(Ordering::Relaxed) {
            peak = peak.max(live());
            std::thread::sleep(LOOK);
        }
        peak
    });
    run();
    ended.store(true, Ordering::Relaxed);
    let peak = watch.join().unwrap().saturating_sub(before);
    let growth = || live().saturating_sub(before);
    for _ in 0..LOOKS {
        if growth() <= STAY_BYTES {
            break;
        }
        std::thread::yield_now();
    }
    (peak, growth())
}

/// Sends the same body many times at once. Each is refused for what it has, none for how many there are.
fn send_at_once(server: &Server, path: &str, body: &[u8]) {
    let (bytes, address) = (request("POST", path, &[JSON], body), server.address);
    std::thread::scope(|scope| {
        for _ in 0..COUNT {
            scope.spawn(|| {
                let reply = exchange(address, &bytes).unwrap();
                assert_eq!(reply.status, 400, "{path}: {}", reply.body);
            });
        }
    });
}

#[test]
fn bodies_at_once_take_bounded_memory() {
    if !is_alone(NAME) {
        return;
    }
    let server = server_with(Settings { limits: limits(), ..Settings::default() });
    let text = "w\\n".repeat(BODY_BYTES / 3 - 100);
    let list = vec![format!("\"{}\"", "w ".repeat(20)); BODY_BYTES / 43 - 100].join(",");
    let message = format!(r#"[{{"role":"user","content":"{text}"}}]"#);
    let bodies = [
        ("/v1/chat/completions", format!(r#"{{"messages":{message}}}"#)),
        ("/v1/completions", format!(r#"{{"prompt":"{text}"}}"#)),
        ("/v1/completions", format!(r#"{{"prompt":[{list}]}}"#)),
        ("/v1/responses", format!(r#"{{"input":"{text}"}}"#)),
        ("/v1/messages", format!(r#"{{"max_tokens":1,"messages":{message}}}"#)),
        ("/api/chat", format!(r#"{{"model":"scripted","messages":{message}}}"#)),
    ];
    for (path, body) in bodies {
        // Threads and connections of the first round stay.
        send_at_once(&server, path, br#"{"temperature":[]}"#);
        let (peak, growth) = peak_and_growth(|| send_at_once(&server, path, body.as_bytes()));
        println!("{path}: {peak} bytes at most, {growth} stay");
        assert!(peak > body.len(), "{path}: {peak} bytes are seen");
        assert!(peak <= RECEIVED_BYTES + READ_BYTES + BESIDE_BYTES + 2 * body.len(), "{path}: {peak} bytes");
        assert!(growth <= STAY_BYTES, "{path}: {growth} bytes stay");
    }
    let messages = [
        ("/v1/responses", format!(r#"{{"type":"response.create","model":"m","input":"{text}"}}"#)),
        ("/v1/stream", format!(r#"{{"id":"a","messages":{message}}}"#)),
    ];
    for (path, message) in messages {
        send_messages_at_once(&server, path, b"{}");
        let (peak, growth) = peak_and_growth(|| send_messages_at_once(&server, path, message.as_bytes()));
        println!("{path}: {peak} bytes at most, {growth} stay");
        assert!(peak > message.len(), "{path}: {peak} bytes are seen");
        assert!(
            peak <= RECEIVED_BYTES + READ_BYTES + BESIDE_BYTES + 2 * message.len(),
            "{path}: {peak} bytes"
        );
        assert!(growth <= STAY_BYTES, "{path}: {growth} bytes stay");
    }
}

/// The frame of a message, masked with zeros.
fn frame(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u64).to_be_bytes();
    [[0x81, 0xff].as_slice(), &length, &[0; 4], message].concat()
}

/// Sends the same message on many WebSockets at once. Each is refused for what it has.
fn send_messages_at_once(server: &Server, path: &str, message: &[u8]) {
    let (frame, address) = (frame(message), server.address);
    std::thread::scope(|scope| {
        for _ in 0..COUNT {
            scope.spawn(|| {
                let mut connection = upgraded(address, path);
                connection.write_all(&frame).unwrap();
                until(&mut connection, b"invalid_request_error");
                // The server drops what was received on it with the connection.
                connection.shutdown(Shutdown::Write).unwrap();
                connection.read_to_end(&mut Vec::new()).unwrap();
            });
        }
    });
}

/// A WebSocket of a server.
fn upgraded(address: SocketAddr, path: &str) -> TcpStream {
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let mut connection = connect(address);
    connection.write_all(head.as_bytes()).unwrap();
    let accepted = until(&mut connection, b"\r\n\r\n");
    assert!(accepted.starts_with("HTTP/1.1 101"), "{accepted}");
    connection
}

/// What is received up to the read that brings these bytes.
fn until(connection: &mut TcpStream, last: &[u8]) -> String {
    let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
    while !all.windows(last.len()).any(|window| window == last) {
        let more = connection.read(&mut bytes).unwrap();
        assert!(more > 0, "the connection ended after {}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&bytes[..more]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn a_large_body_waits_for_another() {
    let server = server_with(Settings { limits: limits(), ..Settings::default() });
    let body = format!(r#"{{"prompt":"{}"}}"#, "w ".repeat(BODY_BYTES / 2 - 100));
    let begun = request("POST", "/v1/completions", &[JSON], body.as_bytes());
    let mut held: Vec<_> = (0..RECEIVED_BYTES / BODY_BYTES).map(|_| connect(server.address)).collect();
    for connection in &mut held {
        connection.write_all(&begun[..begun.len() / 2]).unwrap();
    }
    let address = server.address;
    let waiting = std::thread::spawn(move || post(address, "/v1/completions", &body));
    assert_eq!(post(address, "/v1/completions", r#"{"prompt":"hi","max_tokens":1}"#).status, 200);
    // The rest of one frees its room; the others stay as they are.
    held[0].write_all(&begun[begun.len() / 2..]).unwrap();
    let reply = waiting.join().unwrap();
    assert_eq!(reply.error()["code"], "context_length_exceeded", "{}", reply.body);
}

#[test]
fn a_large_message_waits_for_a_body() {
    let server = server_with(Settings { limits: limits(), ..Settings::default() });
    let message = format!(r#"{{"id":"a","prompt":"{}"}}"#, "w ".repeat(BODY_BYTES / 2 - 100));
    let begun = request("POST", "/v1/completions", &[JSON], message.as_bytes());
    let mut held: Vec<_> = (0..RECEIVED_BYTES / BODY_BYTES).map(|_| connect(server.address)).collect();
    for connection in &mut held {
        connection.write_all(&begun[..begun.len() / 2]).unwrap();
    }
    let mut small = Client::connect(&server);
    small.ask(json!("b"), "hi");
    let mut large = Client::connect(&server);
    let waiting = std::thread::spawn(move || {
        large.send_text(&message);
        large.until_done("a")
    });
    small.until_done("b");
    // The rest of one frees its room; the others stay as they are.
    held[0].write_all(&begun[begun.len() / 2..]).unwrap();
    let replies = waiting.join().unwrap();
    assert_eq!(replies[0]["error"]["param"], "prompt", "{replies:?}");
}

#[test]
fn a_body_that_stalls_loses_its_room() {
    let limits = Limits { stall_timeout: Duration::from_millis(1), ..limits() };
    let server = server_with(Settings { limits, ..Settings::default() });
    let bytes = request("POST", "/v1/completions", &[JSON], &vec![b' '; 100_000]);
    let reply = exchange(server.address, &bytes[..50_000]).unwrap();
    assert_eq!(reply.status, 408, "{}", reply.body);
}

#[test]
fn a_refused_response_is_not_kept() {
    let responses = Arc::new(StoredResponses::default());
    let server = server_with(Settings { responses: Arc::clone(&responses), ..Settings::default() });
    let long = "w ".repeat(10_000);
    for (fields, status) in
        [("", 400), (r#","stream":true"#, 400), (r#","background":true"#, 400), (r#","model":"x""#, 200)]
    {
        let input = if status == 200 { "hi" } else { long.as_str() };
        let body = format!(r#"{{"input":"{input}"{fields}}}"#);
        assert_eq!(post(server.address, "/v1/responses", &body).status, status, "{fields}");
        assert_eq!(responses.count(), usize::from(status == 200), "{fields}");
    }
}
