//! `/v1/conversations`, and responses that extend one, with a scripted engine.

use serde_json::{Value, json};

use super::client::{Reply, exchange, get, post, request};
use super::{Server, server, server_with_keys};

const PATH: &str = "/v1/conversations";

fn made(server: &Server, body: &Value) -> String {
    let reply = post(server.address, PATH, &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["object"], "conversation");
    reply.json()["id"].as_str().unwrap().to_owned()
}

fn delete(server: &Server, path: &str) -> Reply {
    exchange(server.address, &request("DELETE", path, &[], b"")).unwrap()
}

/// The texts of a conversation's items, oldest first.
fn texts(server: &Server, id: &str) -> Vec<String> {
    let reply = get(server.address, &format!("{PATH}/{id}/items?order=asc"));
    let text = |item: &Value| item["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    reply.json()["data"].as_array().unwrap().iter().map(text).collect()
}

fn respond(server: &Server, fields: &Value) -> Reply {
    let mut body = json!({"model": "m", "input": "hi", "max_output_tokens": 2});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    post(server.address, "/v1/responses", &body.to_string())
}

#[test]
fn a_conversation_is_made_changed_and_removed() {
    let server = server();
    let id = made(&server, &json!({"metadata": {"a": "1"}}));
    let path = format!("{PATH}/{id}");
    assert_eq!(get(server.address, &path).json()["metadata"], json!({"a": "1"}));
    let changed = post(server.address, &path, r#"{"metadata":{"b":"2"}}"#).json();
    assert_eq!((&changed["id"], &changed["metadata"]), (&json!(id), &json!({"b": "2"})));
    assert_eq!(get(server.address, &format!("/v1/responses/{id}")).status, 404, "it is no response");
    assert_eq!(delete(&server, &path).json()["object"], "conversation.deleted");
    for reply in [get(server.address, &path), delete(&server, &path), post(server.address, &path, "{}")] {
        assert_eq!((reply.status, &reply.error()["code"]), (404, &json!("not_found")));
    }
}

#[test]
fn items_are_added_listed_read_and_removed() {
    let server = server();
    let user = |text: &str| json!({"role": "user", "content": text});
    let id = made(&server, &json!({"items": [user("a")]}));
    let path = format!("{PATH}/{id}/items");
    let added = post(server.address, &path, &json!({"items": [user("b"), user("c")]}).to_string()).json();
    assert_eq!(added["data"].as_array().unwrap().len(), 2);
    assert_eq!(texts(&server, &id), ["a", "b", "c"]);
    let first = added["first_id"].as_str().unwrap();
    let item = get(server.address, &format!("{path}/{first}")).json();
    assert_eq!((&item["type"], &item["status"]), (&json!("message"), &json!("completed")));
    let after = get(server.address, &format!("{path}?order=asc&limit=1&after={first}")).json();
    assert_eq!((&after["data"][0]["id"], &after["has_more"]), (&added["last_id"], &json!(false)));
    assert_eq!(delete(&server, &format!("{path}/{first}")).json()["id"], json!(id));
    assert_eq!(texts(&server, &id), ["a", "c"]);
    assert_eq!(delete(&server, &format!("{path}/{first}")).status, 404);
}

#[test]
fn what_cannot_be_kept_is_refused_by_name() {
    let server = server();
    let refused = |path: &str, body: &str| {
        let reply = post(server.address, path, body);
        assert_eq!(reply.status, 400, "{}", reply.body);
        reply.error()["param"].clone()
    };
    assert_eq!(refused(PATH, r#"{"items":[{"role":"pilot","content":"x"}]}"#), "items[0].role");
    assert_eq!(refused(PATH, r#"{"metadata":7}"#), "metadata");
    let path = format!("{PATH}/{}/items", made(&server, &json!({})));
    assert_eq!(refused(&path, "{}"), "items");
    let many = json!({"items": vec![json!({"role": "user", "content": "x"}); 4097]});
    assert_eq!(refused(&path, &many.to_string()), "items");
    let page = |query: &str| get(server.address, &format!("{path}?{query}")).error()["param"].clone();
    assert_eq!([page("order=up"), page("after=nothing"), page("limit=x")], ["order", "after", "limit"]);
}

#[test]
fn a_response_continues_and_extends_its_conversation() {
    let server = server();
    let id = made(&server, &json!({"items": [{"role": "user", "content": "first"}]}));
    for conversation in [json!(id), json!({"id": id})] {
        let reply = respond(&server, &json!({"conversation": conversation, "store": false})).json();
        assert_eq!(reply["conversation"]["id"], json!(id), "{reply}");
    }
    assert_eq!(texts(&server, &id), ["first", "hi", "w0 w1 ", "hi", "w0 w1 "]);
    let whole = respond(&server, &json!({"conversation": id, "input": "all of it"})).json();
    assert_eq!(whole["usage"]["input_tokens"], 10, "the prompt has the items before: {whole}");
    let streamed = respond(&server, &json!({"conversation": id, "stream": true}));
    assert_eq!(streamed.status, 200);
    assert_eq!(texts(&server, &id).len(), 9);
    let failed = respond(&server, &json!({"conversation": id, "input": "break it"}));
    assert_eq!(failed.status, 500);
    assert_eq!(texts(&server, &id).len(), 9, "a response that failed extends nothing");
}

#[test]
fn a_response_names_a_conversation_that_is_there() {
    let server = server();
    let refused = |fields: &Value| {
        let reply = respond(&server, fields);
        (reply.status, reply.error()["param"].clone())
    };
    assert_eq!(refused(&json!({"conversation": "conv_1"})), (404, json!("conversation")));
    assert_eq!(refused(&json!({"conversation": 7})), (400, json!("conversation")));
    assert_eq!(refused(&json!({"conversation": {"name": "x"}})), (400, json!("conversation.name")));
    let id = made(&server, &json!({}));
    let both = json!({"conversation": id, "previous_response_id": "resp_1"});
    assert_eq!(refused(&both), (400, json!("previous_response_id")));
}

#[test]
fn a_key_sees_its_own_conversations_only() {
    let server = server_with_keys(&["one", "two"]);
    let send = |method: &str, path: &str, key: &str, body: &str| {
        let authorization = format!("Bearer {key}");
        let headers = [("authorization", authorization.as_str()), super::client::JSON];
        exchange(server.address, &request(method, path, &headers, body.as_bytes())).unwrap()
    };
    let id = send("POST", PATH, "one", "{}").json()["id"].as_str().unwrap().to_owned();
    let path = format!("{PATH}/{id}");
    assert_eq!(send("GET", &path, "one", "").status, 200);
    assert_eq!(send("GET", &path, "two", "").status, 404);
    assert_eq!(send("DELETE", &path, "two", "").status, 404);
}
