//! The Responses API on a WebSocket, with a scripted engine.

use serde_json::{Value, json};

use super::client::get;
use super::scripted::RequestEvent;
use super::stream::Client;
use super::{Server, server};

const PATH: &str = "/v1/responses";

fn connect(server: &Server) -> Client {
    Client::at(server, PATH)
}

/// Sends `response.create`, and receives up to its last event.
fn respond(client: &mut Client, fields: Value) -> Vec<Value> {
    let mut body = json!({"type": "response.create", "model": "m", "input": "hi", "max_output_tokens": 2});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    client.send_text(&body.to_string());
    rest(client)
}

fn rest(client: &mut Client) -> Vec<Value> {
    let ends = ["response.completed", "response.incomplete", "response.failed", "error"];
    let mut events = Vec::new();
    loop {
        let event = client.next();
        let kind = event["type"].as_str().unwrap().to_owned();
        events.push(event);
        if ends.contains(&kind.as_str()) {
            return events;
        }
    }
}

fn last(events: &[Value]) -> &Value {
    events.last().unwrap()
}

fn error(events: &[Value]) -> (Value, Value, Value) {
    let event = last(events);
    (event["status"].clone(), event["error"]["code"].clone(), event["error"]["param"].clone())
}

#[test]
fn a_message_has_the_events_of_a_stream() {
    let server = server();
    let mut client = connect(&server);
    for _ in 0..2 {
        let events = respond(&mut client, json!({"stream": true, "background": false}));
        assert!(
            events.iter().enumerate().all(|(index, event)| event["sequence_number"] == index),
            "{events:?}"
        );
        assert_eq!(events[0]["type"], "response.created");
        assert_eq!(last(&events)["response"]["output"][0]["content"][0]["text"], "w0 w1 ");
        let path = format!("{PATH}/{}", last(&events)["response"]["id"].as_str().unwrap());
        assert_eq!(get(server.address, &path).status, 200, "it is stored");
    }
}

#[test]
fn the_connection_remembers_its_last_response_only() {
    let server = server();
    let mut client = connect(&server);
    let id = |events: &[Value]| last(events)["response"]["id"].clone();
    let first = respond(&mut client, json!({"store": false, "input": "one two"}));
    let next = json!({"store": false, "previous_response_id": id(&first), "input": "all of it"});
    let second = respond(&mut client, next.clone());
    assert_eq!(last(&second)["response"]["usage"]["input_tokens"], 7, "{second:?}");
    let not_found = (json!(400), json!("previous_response_not_found"), json!("previous_response_id"));
    assert_eq!(error(&respond(&mut client, next)), not_found, "it is not the last");
    let other = json!({"store": false, "previous_response_id": id(&second)});
    assert_eq!(error(&respond(&mut connect(&server), other)), not_found, "it is of another connection");
}

#[test]
fn a_response_that_cannot_be_continued_is_evicted() {
    let server = server();
    let orphan = json!([{"type": "function_call_output", "call_id": "c", "output": "x"}]);
    for (input, code) in [(orphan, "invalid_value"), (json!("break it"), "server_error")] {
        let mut client = connect(&server);
        let first = respond(&mut client, json!({"store": false}));
        let id = &last(&first)["response"]["id"];
        let failed =
            respond(&mut client, json!({"store": false, "previous_response_id": id, "input": input}));
        let of = |event: &Value| {
            event["error"]["code"].as_str().or(event["response"]["error"]["code"].as_str()).map(str::to_owned)
        };
        assert_eq!(of(last(&failed)).as_deref(), Some(code), "{failed:?}");
        let again = respond(&mut client, json!({"store": false, "previous_response_id": id}));
        assert_eq!(error(&again).1, "previous_response_not_found");
    }
}

#[test]
fn messages_wait_for_their_turn_and_keep_their_lanes() {
    let server = server();
    let mut client = connect(&server);
    for lane in ["a", "b"] {
        let body =
            json!({"type": "response.create", "stream_id": lane, "input": "hi", "max_output_tokens": 1});
        client.send_text(&body.to_string());
    }
    for lane in ["a", "b"] {
        assert!(rest(&mut client).iter().all(|event| event["stream_id"] == lane));
    }
}

#[test]
fn a_warm_up_computes_its_prompt_and_has_no_output() {
    let server = server();
    let mut client = connect(&server);
    let warm = respond(&mut client, json!({"generate": false, "store": false, "input": "one"}));
    let response = &last(&warm)["response"];
    assert_eq!((&response["status"], &response["output"]), (&json!("completed"), &json!([])), "{warm:?}");
    assert_eq!(warm.len(), 3, "{warm:?}");
    let next = json!({"previous_response_id": response["id"], "input": "all of it"});
    assert_eq!(last(&respond(&mut client, next))["response"]["usage"]["input_tokens"], 4);
}

#[test]
fn what_is_no_request_is_an_error_event_and_the_connection_goes_on() {
    let server = server();
    let mut client = connect(&server);
    let mut refused = |message: &str| {
        client.send_text(message);
        let event = client.next();
        assert_eq!((&event["type"], &event["status"]), (&json!("error"), &json!(400)), "{event}");
        event["error"]["param"].clone()
    };
    assert_eq!(refused("{"), json!(null));
    assert_eq!(refused("[]"), json!(null));
    assert_eq!(refused("{}"), "type");
    assert_eq!(refused(r#"{"type":"response.steer"}"#), "type");
    assert_eq!(refused(r#"{"type":"response.create","input":"x","background":true}"#), "background");
    assert_eq!(refused(r#"{"type":"response.create","input":"x","stream":false}"#), "stream");
    assert_eq!(refused(r#"{"type":"response.create","input":"x","stream_id":7}"#), "stream_id");
    assert_eq!(refused(r#"{"type":"response.create"}"#), "input");
    assert_eq!(last(&respond(&mut client, json!({})))["type"], "response.incomplete");
    let plain = get(server.address, PATH);
    assert_eq!((plain.status, &plain.error()["param"]), (400, &json!("upgrade")));
}

#[test]
fn a_client_that_leaves_ends_its_response() {
    let server = server();
    let mut client = connect(&server);
    client.send_text(r#"{"type":"response.create","input":"forever"}"#);
    assert_eq!(client.next()["type"], "response.created");
    drop(client);
    let dropped = server.request_events.iter().find(|event| matches!(event, RequestEvent::Dropped(_)));
    assert!(dropped.is_some());
}
