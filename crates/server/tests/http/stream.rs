//! `/v1/stream` with a scripted engine: several requests on one WebSocket.

use std::net::TcpStream;

use omnibus_server::{Limits, Settings};
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

use super::scripted::RequestEvent;
use super::{Server, client::get, server, server_with, server_with_keys};

/// A client of one connection.
pub struct Client(WebSocket<MaybeTlsStream<TcpStream>>);

impl Client {
    pub fn connect(server: &Server) -> Self {
        Self::at(server, "/v1/stream")
    }

    pub fn at(server: &Server, path: &str) -> Self {
        Self(tungstenite::connect(format!("ws://{}{path}", server.address)).unwrap().0)
    }

    pub fn with(request: tungstenite::handshake::client::Request) -> Self {
        Self(tungstenite::connect(request).unwrap().0)
    }

    pub fn send_text(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.send(Message::binary(bytes.to_vec())).unwrap();
    }

    fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    pub fn ask(&mut self, id: Value, word: &str) {
        self.send(&json!({"id": id, "messages": [{"role": "user", "content": word}], "max_tokens": 2}));
    }

    pub fn next(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.0.read().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// Sends a message that may be refused while it is sent, and receives the code that the connection is closed with.
    pub fn code_after(&mut self, text: String) -> Option<u16> {
        _ = self.0.send(Message::text(text));
        loop {
            match self.0.read() {
                Ok(Message::Close(frame)) => return frame.map(|frame| frame.code.into()),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// The replies up to the end of a request.
    pub fn until_done(&mut self, id: &str) -> Vec<Value> {
        let mut replies = Vec::new();
        loop {
            let reply = self.next();
            let is_end = reply["id"] == id && reply["done"] == true;
            replies.push(reply);
            if is_end {
                return replies;
            }
        }
    }
}

fn text(replies: &[Value], id: &str) -> String {
    let own = replies.iter().filter(|reply| reply["id"] == id);
    own.filter_map(|reply| reply["choices"][0]["delta"]["content"].as_str()).collect()
}

#[test]
fn requests_of_one_connection_run_beside_each_other() {
    let server = server();
    let mut client = Client::connect(&server);
    client.ask(json!("a"), "forever");
    client.ask(json!(7), "hi");
    let replies = client.until_done("7");
    assert_eq!(text(&replies, "7"), "w0 w1 ");
    assert!(replies.iter().any(|reply| reply["choices"][0]["finish_reason"] == "length"), "{replies:?}");
    client.ask(json!("a"), "hi");
    let refused = client.until_done("a");
    assert_eq!(refused.last().unwrap()["error"]["param"], "id", "{refused:?}");
    client.send(&json!({"cancel": "a"}));
    assert_eq!(client.until_done("a").last().unwrap()["cancelled"], true);
    client.ask(json!("a"), "hi");
    assert_eq!(text(&client.until_done("a"), "a"), "w0 w1 ");
}

#[test]
fn a_message_that_is_too_large_ends_its_connection_with_the_reason() {
    let limits = Limits { body_bytes: 100_000, ..Limits::default() };
    let server = server_with(Settings { limits, ..Settings::default() });
    for path in ["/v1/stream", "/v1/responses"] {
        assert_eq!(Client::at(&server, path).code_after("x".repeat(100_001)), Some(1009), "{path}");
    }
}

#[test]
fn a_closed_connection_cancels_its_requests() {
    let server = server();
    let mut client = Client::connect(&server);
    client.ask(json!("a"), "forever");
    while client.next()["choices"][0]["delta"]["content"] != "w0 " {}
    server.submitted();
    drop(client);
    assert!(matches!(server.next_event(), RequestEvent::Dropped(_)));
}

#[test]
fn invalid_messages_are_refused_and_the_connection_stays() {
    let server = server();
    let mut client = Client::connect(&server);
    for (message, param) in [
        (json!([]), json!(null)),
        (json!({}), json!("id")),
        (json!({"id": ""}), json!("id")),
        (json!({"id": "x"}), json!("messages")),
        (json!({"id": "x", "messages": [], "max_tokens": 1}), json!("messages")),
        (
            json!({"id": "x", "messages": [{"role": "user", "content": "hi"}], "temperature": "hot"}),
            json!("temperature"),
        ),
        (
            json!({"id": "x", "messages": [{"role": "user", "content": "hi"}], "model": "missing"}),
            json!("model"),
        ),
        (json!({"cancel": "missing"}), json!("cancel")),
    ] {
        client.send(&message);
        let reply = client.next();
        assert_eq!((&reply["error"]["param"], &reply["done"]), (&param, &json!(true)), "{message}: {reply}");
    }
    client.0.send(Message::text("{")).unwrap();
    assert_eq!(client.next()["error"]["code"], "invalid_json");
    client.ask(json!("x"), "break");
    let failed = client.until_done("x");
    assert!(failed.iter().any(|reply| reply["error"]["code"] == "internal_error"), "{failed:?}");
    client.ask(json!("x"), "hi");
    assert_eq!(text(&client.until_done("x"), "x"), "w0 w1 ");
}

#[test]
fn a_request_without_an_upgrade_gets_an_error_object() {
    let plain = get(server().address, "/v1/stream");
    assert_eq!((plain.status, &plain.error()["param"]), (400, &json!("upgrade")), "{}", plain.body);
}

#[test]
fn a_connection_that_is_not_read_holds_up_no_other() {
    let server = server();
    let mut stalled = Client::connect(&server);
    // More chunks than sockets and channels hold.
    for id in 0..100 {
        stalled.send(&json!({"id": id, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4000}));
        server.submitted();
    }
    let mut other = Client::connect(&server);
    other.ask(json!("x"), "hi");
    assert_eq!(text(&other.until_done("x"), "x"), "w0 w1 ");
    drop(stalled);
    // What the stalled one had not read is cancelled.
    while !matches!(server.next_event(), RequestEvent::Dropped(_)) {}
}

#[test]
fn a_connection_needs_a_key() {
    let server = server_with_keys(&["secret"]);
    let refused = tungstenite::connect(format!("ws://{}/v1/stream", server.address));
    assert!(matches!(refused, Err(tungstenite::Error::Http(response)) if response.status() == 401));
}
