//! Paths without a version, models in Anthropic's shape, and counted inputs.

use serde_json::{Value, json};

use super::client::{exchange, get, post, request};
use super::{Server, server, server_with_keys};

#[test]
fn paths_answer_without_their_version() {
    let server = server();
    let chat = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}).to_string();
    for path in ["/chat/completions", "/v1/chat/completions", "/messages", "/v1/messages"] {
        assert_eq!(post(server.address, path, &chat).status, 200, "{path}");
    }
    assert_eq!(get(server.address, "/models").body, get(server.address, "/v1/models").body);
    assert_eq!(get(server.address, "/models/alias/one").json()["id"], "alias/one");
    assert_eq!(get(server.address, "/health").status, 200);
    let error = post(server.address, "/messages", "{}").json();
    assert_eq!(error["type"], "error", "{error}");
    let keyed = server_with_keys(&["k"]);
    assert_eq!(post(keyed.address, "/chat/completions", &chat).status, 401);
}

fn models(server: &Server, query: &str) -> Value {
    let header = [("anthropic-version", "2023-06-01")];
    let reply =
        exchange(server.address, &request("GET", &format!("/v1/models{query}"), &header, b"")).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

#[test]
fn anthropics_clients_get_models_in_their_shape() {
    let server = server();
    let all = models(&server, "");
    let first = json!({"type": "model", "id": "scripted", "display_name": "scripted", "created_at": "1970-01-01T00:00:01Z",
        "lifecycle": "active", "max_input_tokens": 4096, "max_tokens": 4096});
    assert_eq!(all["data"][0], first);
    assert_eq!(
        (&all["has_more"], &all["first_id"], &all["last_id"]),
        (&json!(false), &json!("scripted"), &json!("alias/one"))
    );
    let page = models(&server, "?limit=1");
    assert_eq!((&page["has_more"], &page["last_id"]), (&json!(true), &json!("scripted")));
    assert_eq!(models(&server, "?after_id=scripted")["first_id"], "alias/one");
    assert_eq!(models(&server, "?before_id=alias/one")["last_id"], "scripted");
    assert_eq!(models(&server, "?after_id=alias/one&before_id=scripted")["data"], json!([]));
    assert_eq!(models(&server, "/scripted"), first);
    assert_eq!(get(server.address, "/v1/models").json()["object"], "list");
}

#[test]
fn the_tokens_of_an_input_are_counted() {
    let server = server();
    let count = |body: Value| post(server.address, "/v1/responses/input_tokens", &body.to_string());
    assert_eq!(
        count(json!({"input": "one two three"})).json(),
        json!({"object": "response.input_tokens", "input_tokens": 3})
    );
    let first =
        post(server.address, "/v1/responses", &json!({"input": "hi", "max_output_tokens": 2}).to_string())
            .json();
    let continued = count(json!({"previous_response_id": first["id"], "input": "a b"}));
    assert_eq!(continued.json()["input_tokens"], 2);
    assert_eq!(count(json!({"input": 3})).error()["param"], "input");
    assert_eq!(count(json!({"input": [{"id": "msg_1"}]})).status, 404);
}
