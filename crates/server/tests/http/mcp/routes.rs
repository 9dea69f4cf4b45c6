//! `/v1/mcp`: servers, tools, and calls of the client.

use omnibus_server::Settings;
use omnibus_testing::mcp::{entry, entry_with};
use serde_json::{Value, json};

use super::super::client::{JSON, exchange, get, request};
use super::{careful, keys, with, with_settings};

#[test]
fn servers_and_their_tools_are_listed() {
    let server = with(&[("s", entry(&["modern"])), ("t", entry(&["exits"]))], json!({}));
    let servers = get(server.server.address, "/v1/mcp/servers").json()["servers"].take();
    let (s, t) = (&servers[0], &servers[1]);
    assert_eq!(
        (&s["name"], &s["state"], &s["transport"]),
        (&json!("s"), &json!("connected"), &json!("stdio"))
    );
    assert_eq!(
        (&s["tools_count"], &s["protocol_version"], &s["error"]),
        (&json!(12), &json!("2026-07-28"), &Value::Null)
    );
    assert_eq!((&t["state"], &t["tools_count"]), (&json!("error"), &json!(0)));
    assert!(t["error"].as_str().unwrap().contains("no license"), "{t}");
    let tools = get(server.server.address, "/v1/mcp/tools").json();
    assert_eq!(tools["count"], 12);
    let echo = &tools["tools"][0];
    assert_eq!(
        (&echo["name"], &echo["server"], &echo["approval"]),
        (&json!("s__echo"), &json!("s"), &json!("always"))
    );
    assert_eq!(echo["parameters"]["required"], json!(["text"]));
    assert_eq!(echo["hash"].as_str().unwrap().len(), 64);
}

#[test]
fn a_client_calls_a_tool_itself() {
    let server = careful(json!({}));
    let execute = |body: Value| server.post("/v1/mcp/execute", &body);
    let sum = execute(json!({"tool_name": "s__add", "arguments": {"a": 1, "b": 2}})).json();
    assert_eq!(
        sum,
        json!({"tool_name": "s__add", "content": "3", "structured_content": {"sum": 3}, "is_error": false, "error_message": null})
    );
    let failed = execute(json!({"tool_name": "s/fail"})).json();
    assert_eq!((&failed["is_error"], &failed["error_message"]), (&json!(true), &json!("it is broken")));
    for (body, status, param) in [
        (json!({}), 400, json!("tool_name")),
        (json!({"tool_name": "s__nothing"}), 404, Value::Null),
        (json!({"tool_name": "s__add", "arguments": {"a": 1}}), 400, json!("arguments")),
        (json!({"tool_name": "s__add", "arguments": []}), 400, json!("arguments")),
        (json!({"tool_name": "s__add", "more": 1}), 400, json!("more")),
    ] {
        let reply = execute(body);
        assert_eq!((reply.status, &reply.error()["param"]), (status, &param), "{}", reply.body);
    }
}

#[test]
fn without_servers_the_lists_are_empty() {
    let server = super::super::server();
    assert_eq!(get(server.address, "/v1/mcp/servers").json(), json!({"servers": []}));
    assert_eq!(get(server.address, "/v1/mcp/tools").json(), json!({"tools": [], "count": 0}));
    let body = r#"{"tool_name": "s__echo"}"#;
    assert_eq!(super::super::client::post(server.address, "/v1/mcp/execute", body).status, 404);
}

#[test]
fn a_key_sees_the_tools_that_it_may_use() {
    let keys = keys(
        "[[key]]\nname = \"a\"\nkey = \"sk-a\"\ntools = [\"s/echo\"]\n[[key]]\nname = \"b\"\nkey = \"sk-b\"\n",
    );
    let entry = entry_with(&[], json!({}));
    let settings = Settings { keys, ..Settings::default() };
    let server = with_settings(&[("s", entry.clone()), ("t", entry)], json!({}), &[], settings);
    let ask = |key: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {key}");
        let bytes = request(method, path, &[JSON, ("authorization", &bearer)], body.as_bytes());
        exchange(server.server.address, &bytes).unwrap()
    };
    assert_eq!(ask("sk-a", "GET", "/v1/mcp/tools", "").json()["count"], 1);
    assert_eq!(ask("sk-b", "GET", "/v1/mcp/tools", "").json()["count"], 24);
    assert_eq!(ask("sk-a", "GET", "/v1/mcp/servers", "").json()["servers"].as_array().unwrap().len(), 1);
    let call = |key: &str| {
        ask(key, "POST", "/v1/mcp/execute", r#"{"tool_name":"s__add","arguments":{"a":1,"b":1}}"#)
    };
    assert_eq!((call("sk-a").status, call("sk-b").status), (404, 200));
}
