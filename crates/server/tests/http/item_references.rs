//! Stored items that a client refers to by their ids, as the AI SDK does with the assistant's turns.

use serde_json::{Value, json};

use super::client::{get, post};
use super::{Server, server};

const PATH: &str = "/v1/responses";

fn respond(server: &Server, input: &Value) -> Value {
    let reply = post(server.address, PATH, &json!({"input": input, "max_output_tokens": 2}).to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// The status, and the field and the message of the error.
fn refused(server: &Server, body: &Value) -> (u16, Value, String) {
    let reply = post(server.address, PATH, &body.to_string());
    let error = reply.error();
    (reply.status, error["param"].clone(), error["message"].as_str().unwrap().to_owned())
}

/// The input items of a response, as stored.
fn input_items(server: &Server, response: &Value) -> Vec<Value> {
    let path = format!("{PATH}/{}/input_items?order=asc", response["id"].as_str().unwrap());
    get(server.address, &path).json()["data"].as_array().unwrap().clone()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

#[test]
fn referred_items_stand_in_the_conversation_where_they_are_referred_to() {
    let server = server();
    let first = respond(&server, &json!([user("tools")]));
    let output = first["output"].as_array().unwrap();
    let ids: Vec<&Value> = output.iter().map(|item| &item["id"]).collect();
    assert_eq!(ids.len(), 3, "{first}");
    let asked = &input_items(&server, &first)[0]["id"];
    let second = respond(
        &server,
        &json!([
            {"type": "item_reference", "id": asked},
            {"type": "item_reference", "id": ids[0]},
            {"id": ids[1]},
            {"type": null, "id": ids[2]},
            {"type": "function_call_output", "call_id": "call-1", "output": "3"},
            user("again"),
        ]),
    );
    let items = input_items(&server, &second);
    assert_eq!(items[0]["content"], "tools");
    assert_eq!(items[1..4], output[..]);
    assert_eq!((&items[4]["output"], &items[5]["content"]), (&json!("3"), &json!("again")));
    assert_eq!(items.len(), 6);
}

#[test]
fn unknown_items_are_not_found_and_known_ones_not_repeated() {
    let server = server();
    let unknown = json!({"input": [user("hi"), {"type": "item_reference", "id": "msg_1"}]});
    let not_found = |at: &str| (404, json!(at), "no stored item has the id `msg_1`".to_owned());
    assert_eq!(refused(&server, &unknown), not_found("input[1].id"));
    assert_eq!(refused(&server, &json!({"input": [{"id": "msg_1"}]})), not_found("input[0].id"));
    let nameless = refused(&server, &json!({"input": [{"type": "item_reference"}]}));
    assert_eq!(nameless, (400, json!("input[0].id"), "`input[0].id` is missing".to_owned()));

    let first = respond(&server, &json!("hi"));
    let item = &first["output"][0]["id"];
    let again = format!("the item `{}` is in the conversation already", item.as_str().unwrap());
    let twice = refused(&server, &json!({"input": [{"id": item}, {"id": item}]}));
    assert_eq!(twice, (400, json!("input[1].id"), again.clone()));
    let continued = json!({"previous_response_id": first["id"], "input": [{"id": item}]});
    assert_eq!(refused(&server, &continued), (400, json!("input[0].id"), again));

    let discarded = post(server.address, PATH, &json!({"input": "hi", "store": false}).to_string()).json();
    let gone = refused(&server, &json!({"input": [{"id": discarded["output"][0]["id"]}]}));
    assert_eq!((gone.0, gone.1), (404, json!("input[0].id")));
}
