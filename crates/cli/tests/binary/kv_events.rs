//! KV events of a server, as a ZeroMQ subscriber gets them.

use std::time::Duration;

use serde_json::{Value, json};
use zeromq::{Socket, SocketRecv, SubSocket};

use super::client::{get, post};
use super::process::{Server, run, text};

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A MessagePack value, of the kinds that events have; the rest of the bytes follows it.
fn unpack(bytes: &[u8]) -> (Value, &[u8]) {
    let (marker, rest) = (bytes[0], &bytes[1..]);
    let number = |size: usize| rest[..size].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let array = |length: u64, mut rest| {
        let mut values = Vec::new();
        for _ in 0..length {
            let (value, after) = unpack(rest);
            values.push(value);
            rest = after;
        }
        (Value::Array(values), rest)
    };
    match marker {
        0..0x80 => (json!(marker), rest),
        0x90..0xa0 => array(u64::from(marker & 15), rest),
        0xa0..0xc0 => {
            let (text, rest) = rest.split_at(usize::from(marker & 31));
            (json!(std::str::from_utf8(text).unwrap()), rest)
        }
        0xc0 => (Value::Null, rest),
        0xcb => (json!(f64::from_bits(number(8))), &rest[8..]),
        0xcc..=0xcf => {
            let size = 1 << (marker - 0xcc);
            (json!(number(size)), &rest[size..])
        }
        0xdc => array(number(2), &rest[2..]),
        _ => panic!("no event has the marker {marker:x}"),
    }
}

/// The next batch of a subscriber: its number, and its events.
async fn next(subscriber: &mut SubSocket, topic: &str) -> (u64, Vec<Value>) {
    let message = tokio::time::timeout(Duration::from_secs(60), subscriber.recv()).await.unwrap().unwrap();
    let frames = message.into_vec();
    assert_eq!((frames.len(), &frames[0][..]), (3, topic.as_bytes()));
    let (batch, rest) = unpack(&frames[2]);
    assert!(rest.is_empty() && batch[0].as_f64().unwrap() > 1.7e9 && batch[2] == 0, "{batch}");
    (u64::from_be_bytes(frames[1][..].try_into().unwrap()), batch[1].as_array().unwrap().clone())
}

fn complete(server: &Server, prompt: &str) {
    let body = json!({"prompt": prompt, "max_tokens": 1, "temperature": 0});
    assert_eq!(post(server.address, "/v1/completions", &body.to_string()).status, 200);
}

#[tokio::test]
async fn a_subscriber_learns_which_blocks_are_cached() {
    let endpoint = format!("tcp://127.0.0.1:{}", free_port());
    let server = Server::start(&["--log", "off", "--block-size", "16", "--kv-events-endpoint", &endpoint]);
    let topic = format!("kv@{}@omnibus-mini", endpoint.trim_start_matches("tcp://"));
    let mut subscriber = SubSocket::new();
    subscriber.connect(&endpoint).await.unwrap();
    subscriber.subscribe("kv@").await.unwrap();

    // The server has the subscription some time after it was sent: until then, events pass by.
    let mut first = None;
    for number in 0.. {
        complete(
            &server,
            &format!("{number} is the number of a bus that waits at the corner of the long street."),
        );
        let wait = tokio::time::timeout(Duration::from_millis(200), next(&mut subscriber, &topic));
        if let Ok(batch) = wait.await {
            first = Some(batch);
            break;
        }
    }
    let (mut sequence, _) = first.unwrap();
    let prompt = "Every block of this prompt is published with its tokens. ".repeat(8);
    complete(&server, &prompt);
    let tokens =
        post(server.address, "/tokenize", &json!({"prompt": prompt}).to_string()).json()["tokens"].clone();
    let tokens = tokens.as_array().unwrap();
    let (mut parent, mut found) = (Value::Null, 0);
    while found + 16 <= tokens.len() {
        let (number, events) = next(&mut subscriber, &topic).await;
        assert_eq!(number, sequence + 1, "nothing is lost");
        sequence = number;
        // Blocks of the prompts before may still arrive; those of this one begin with its tokens.
        for event in events {
            if parent.is_null() && event[3] != json!(tokens[..16]) {
                continue;
            }
            let expected = &tokens[found..found + 16];
            let hashes = event[1].clone();
            let fields = json!(["BlockStored", hashes, parent, expected, 16, null, "GPU", null]);
            assert_eq!(event, fields);
            parent = hashes[0].clone();
            found += 16;
        }
    }
    let metrics = get(server.address, "/metrics").body;
    assert!(metrics.contains("omnibus_kv_events_dropped_total 0"), "{metrics}");
}

#[test]
fn an_endpoint_that_cannot_be_used_is_named() {
    let wrong = run(&["serve", "--kv-events-endpoint", "127.0.0.1:5557"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("tcp://127.0.0.1:5557"), "{}", text(&wrong.stderr));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", taken.local_addr().unwrap());
    let failed = run(&["serve", "--port", "0", "--kv-events-endpoint", &endpoint]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains(&endpoint), "{}", text(&failed.stderr));
}
