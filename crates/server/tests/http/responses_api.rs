//! The Responses API with a scripted engine: items, events, and responses that are kept.

use std::io::{Read, Write};
use std::time::Duration;

use expect_test::{Expect, expect};
use omnibus_server::Settings;
use serde_json::{Value, json};

use super::client::{JSON, Reply, connect, exchange, get, post, request};
use super::scripted::RequestEvent;
use super::{Server, server, server_with};

const PATH: &str = "/v1/responses";

fn body(word: &str, fields: Value) -> String {
    let mut body = json!({"model": "gpt-of-the-client", "input": word, "max_output_tokens": 2});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

fn ask(server: &Server, body: &str) -> Value {
    let reply = post(server.address, PATH, body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

fn delete(server: &Server, path: &str) -> Reply {
    exchange(server.address, &request("DELETE", path, &[], b"")).unwrap()
}

/// The names and data of events, without the response, and with ids replaced.
fn check_events(reply: &Reply, expected: Expect) {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let mut lines = Vec::new();
    for (index, event) in reply.events().iter().enumerate() {
        let mut event: Value = serde_json::from_str(event).unwrap();
        assert_eq!(event["sequence_number"], index, "{event}");
        let fields = event.as_object_mut().unwrap();
        fields.remove("sequence_number");
        let kind = fields.remove("type").unwrap();
        if let Some(response) = fields.remove("response") {
            fields.insert("status".into(), response["status"].clone());
            fields.insert("items".into(), response["output"].as_array().unwrap().len().into());
        }
        lines.push(format!("{} {event}", kind.as_str().unwrap()));
    }
    let text = lines.join("\n");
    let suffix = text.split("rs_").nth(1).or(text.split("msg_").nth(1)).map(|rest| rest[..32].to_owned());
    expected.assert_eq(&suffix.map_or(text.clone(), |suffix| text.replace(&suffix, "")));
}

#[test]
fn a_stream_has_every_event_in_order() {
    let server = server();
    let tools = json!([{"type": "function", "name": "f"}]);
    check_events(
        &post(server.address, PATH, &body("tools", json!({"stream": true, "tools": tools}))),
        expect![[r#"
            response.created {"status":"in_progress","items":0}
            response.in_progress {"status":"in_progress","items":0}
            response.output_item.added {"output_index":0,"item":{"type":"reasoning","id":"rs_0000","summary":[],"encrypted_content":null}}
            response.reasoning_summary_part.added {"summary_index":0,"part":{"type":"summary_text","text":""},"item_id":"rs_0000","output_index":0}
            response.reasoning_summary_text.delta {"summary_index":0,"delta":"hm","item_id":"rs_0000","output_index":0}
            response.reasoning_summary_text.done {"summary_index":0,"text":"hm","item_id":"rs_0000","output_index":0}
            response.reasoning_summary_part.done {"summary_index":0,"part":{"type":"summary_text","text":"hm"},"item_id":"rs_0000","output_index":0}
            response.output_item.done {"output_index":0,"item":{"type":"reasoning","id":"rs_0000","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":null}}
            response.output_item.added {"output_index":1,"item":{"type":"message","id":"msg_0001","status":"in_progress","role":"assistant","content":[]}}
            response.content_part.added {"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]},"item_id":"msg_0001","output_index":1}
            response.output_text.delta {"logprobs":[],"delta":"calling","item_id":"msg_0001","output_index":1,"content_index":0}
            response.output_text.done {"logprobs":[],"text":"calling","item_id":"msg_0001","output_index":1,"content_index":0}
            response.content_part.done {"content_index":0,"part":{"type":"output_text","text":"calling","annotations":[],"logprobs":[]},"item_id":"msg_0001","output_index":1}
            response.output_item.done {"output_index":1,"item":{"type":"message","id":"msg_0001","status":"completed","role":"assistant","content":[{"type":"output_text","text":"calling","annotations":[],"logprobs":[]}]}}
            response.output_item.added {"output_index":2,"item":{"type":"function_call","id":"fc_0002","status":"in_progress","call_id":"call-1","name":"f","arguments":""}}
            response.function_call_arguments.delta {"output_index":2,"delta":"{\"a\":","item_id":"fc_0002"}
            response.function_call_arguments.delta {"output_index":2,"delta":"1}","item_id":"fc_0002"}
            response.function_call_arguments.done {"output_index":2,"arguments":"{\"a\":1}","item_id":"fc_0002"}
            response.output_item.done {"output_index":2,"item":{"type":"function_call","id":"fc_0002","status":"completed","call_id":"call-1","name":"f","arguments":"{\"a\":1}"}}
            response.completed {"status":"completed","items":3}"#]],
    );
    let inside = json!([{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}]);
    let namespaced = ask(&server, &body("tools", json!({"tools": inside})));
    assert_eq!(namespaced["output"][2]["namespace"], "n");
    let custom = json!([{"type": "custom", "name": "f"}]);
    let called =
        ask(&server, &body("tools", json!({"tools": custom, "include": ["reasoning.encrypted_content"]})));
    assert_eq!(called["output"][2]["type"], "custom_tool_call");
    assert_eq!(called["output"][0]["encrypted_content"], "omnibus1.aG0");
}

#[test]
fn a_full_response_has_the_items_of_the_stream() {
    let server = server();
    let full = ask(&server, &body("tools", json!({})));
    let reply = post(server.address, PATH, &body("tools", json!({"stream": true})));
    let last: Value = serde_json::from_str(reply.events().last().unwrap()).unwrap();
    assert_eq!(last["type"], "response.completed");
    let plain = |items: &Value| -> Vec<Value> {
        let plain = |item: &Value| {
            let mut item = item.clone();
            item.as_object_mut().unwrap().remove("id");
            item
        };
        items.as_array().unwrap().iter().map(plain).collect()
    };
    assert_eq!(plain(&full["output"]), plain(&last["response"]["output"]));
    assert_eq!(full["usage"], last["response"]["usage"]);
    let cut = ask(&server, &body("hi", json!({})));
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    assert_eq!(cut["model"], "gpt-of-the-client");
}

#[test]
fn a_stored_response_is_continued_listed_and_deleted() {
    let server = server();
    let first = ask(&server, &body("hi there", json!({"metadata": {"a": "b"}})));
    let id = first["id"].as_str().unwrap();
    assert_eq!(get(server.address, &format!("{PATH}/{id}")).json(), first);
    let second = ask(&server, &body("again", json!({"previous_response_id": id})));
    assert_eq!(second["previous_response_id"], id);
    let items =
        get(server.address, &format!("{PATH}/{}/input_items?order=asc", second["id"].as_str().unwrap()))
            .json();
    let wrong = get(server.address, &format!("{PATH}/{id}/input_items?limit=many"));
    assert_eq!((wrong.status, &wrong.error()["param"]), (400, &json!("limit")));
    let contents: Vec<String> =
        items["data"].as_array().unwrap().iter().map(|item| item["content"].to_string()).collect();
    assert_eq!(contents.len(), 3, "{items}");
    assert_eq!((&contents[0], &contents[2]), (&"\"hi there\"".to_owned(), &"\"again\"".to_owned()));
    assert_eq!(delete(&server, &format!("{PATH}/{id}")).json()["deleted"], true);
    assert_eq!(get(server.address, &format!("{PATH}/{id}")).status, 404);
    let gone = post(server.address, PATH, &body("again", json!({"previous_response_id": id})));
    assert_eq!((gone.status, &gone.error()["code"]), (400, &json!("previous_response_not_found")));
    let discarded = ask(&server, &body("hi", json!({"store": false})));
    assert_eq!(get(server.address, &format!("{PATH}/{}", discarded["id"].as_str().unwrap())).status, 404);
}

#[test]
fn a_background_response_is_fetched_or_cancelled() {
    let server = server();
    let accepted = ask(&server, &body("forever", json!({"background": true})));
    assert_eq!(accepted["status"], "queued");
    let path = format!("{PATH}/{}", accepted["id"].as_str().unwrap());
    server.submitted();
    let cancelled = post(server.address, &format!("{path}/cancel"), "{}").json();
    assert_eq!(cancelled["status"], "cancelled");
    assert!(matches!(server.next_event(), RequestEvent::Cancelled(_)));
    let short = ask(&server, &body("hi", json!({"background": true})));
    let path = format!("{PATH}/{}", short["id"].as_str().unwrap());
    loop {
        let response = get(server.address, &path).json();
        if response["status"] == "incomplete" {
            assert_eq!(response["output"][0]["content"][0]["text"], "w0 w1 ");
            break;
        }
        assert!(["queued", "in_progress"].contains(&response["status"].as_str().unwrap()), "{response}");
        std::thread::yield_now();
    }
}

#[test]
fn a_background_stream_outlives_its_client_and_is_read_again() {
    let server = server();
    let background = json!({"background": true, "stream": true});
    let whole = post(server.address, PATH, &body("tools", background.clone()));
    let first: Value = serde_json::from_str(&whole.events()[0]).unwrap();
    assert_eq!(first["response"]["background"], true);
    let path = format!("{PATH}/{}", first["response"]["id"].as_str().unwrap());
    assert_eq!(get(server.address, &format!("{path}?stream=true")).events(), whole.events());
    let rest = get(server.address, &format!("{path}?stream=true&starting_after=4")).events();
    assert_eq!(rest, whole.events()[5..]);
    for query in ["stream=perhaps", "starting_after=-1", "stream=true&starting_after=x"] {
        assert_eq!(get(server.address, &format!("{path}?{query}")).status, 400, "{query}");
    }
    server.submitted();

    let mut stream = connect(server.address);
    let endless = body("forever", background);
    stream.write_all(&request("POST", PATH, &[JSON], endless.as_bytes())).unwrap();
    let mut text = String::new();
    let mut chunk = [0; 1024];
    while !text.contains("\"delta\":\"w0 \"") {
        let count = stream.read(&mut chunk).unwrap();
        text.push_str(&String::from_utf8_lossy(&chunk[..count]));
    }
    drop(stream);
    let id = text.split("\"id\":\"resp_").nth(1).unwrap().split('"').next().unwrap();
    let path = format!("{PATH}/resp_{id}");
    let address = server.address;
    let reader = std::thread::spawn({
        let path = format!("{path}?stream=true&starting_after=1");
        move || get(address, &path).events()
    });
    server.submitted();
    assert_eq!(post(server.address, &format!("{path}/cancel"), "{}").json()["status"], "cancelled");
    let events = reader.join().unwrap();
    assert!(events[0].contains("response.output_item.added"), "{events:?}");
    assert!(events.last().unwrap().contains("\"status\":\"cancelled\""), "{events:?}");
    assert!(matches!(server.next_event(), RequestEvent::Cancelled(_)), "it was not dropped with its client");

    assert_eq!(delete(&server, &path).status, 200);
    assert_eq!(get(server.address, &format!("{path}?stream=true")).status, 404);
    let plain = ask(&server, &body("hi", json!({})));
    let path = format!("{PATH}/{}?stream=true", plain["id"].as_str().unwrap());
    assert_eq!(get(server.address, &path).error()["param"], "stream");
}

#[test]
fn failures_have_codes_that_clients_act_on() {
    let server = server();
    let long = post(server.address, PATH, &body("hi", json!({"max_output_tokens": 5000})));
    assert_eq!((long.status, &long.error()["code"]), (400, &json!("context_length_exceeded")));
    let busy = post(server.address, PATH, &body("busy", json!({})));
    assert_eq!((busy.status, busy.header("retry-after")), (429, Some("3")));
    let broken = post(server.address, PATH, &body("break", json!({"stream": true})));
    let last: Value = serde_json::from_str(broken.events().last().unwrap()).unwrap();
    assert_eq!(
        (&last["type"], &last["response"]["error"]["code"]),
        (&json!("response.failed"), &json!("server_error"))
    );
}

#[test]
fn a_silent_stream_repeats_that_it_is_in_progress() {
    let server = server_with(Settings { keep_alive: Duration::from_millis(5), ..Settings::default() });
    let mut stream = connect(server.address);
    let body = body("forever", json!({"stream": true}));
    stream.write_all(&request("POST", PATH, &[JSON], body.as_bytes())).unwrap();
    let (mut text, mut chunk) = (String::new(), [0; 1024]);
    while text.matches("event: response.in_progress").count() < 4 {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..count]));
    }
}
