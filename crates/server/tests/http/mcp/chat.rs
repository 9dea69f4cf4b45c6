//! Chat completions with tools that the server runs.

use omnibus_server::Settings;
use omnibus_testing::mcp::{HttpServer, entry_with};
use serde_json::{Value, json};

use super::super::client::{JSON, exchange, request};
use super::{WithTools, careful, keys, trusted, trusted_entry, with, with_settings};

const PATH: &str = "/v1/chat/completions";

fn body(script: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": format!("script: {script}")}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn auto(script: &str) -> Value {
    body(script, json!({"tools": "auto"}))
}

fn message(server: &WithTools, body: &Value) -> Value {
    server.answer(PATH, body)["choices"][0]["message"].take()
}

#[test]
fn the_server_calls_tools_until_the_model_answers() {
    let server = trusted();
    let answer = server.answer(PATH, &auto(r#"say let me see & call s__add {"a":1,"b":2} | results"#));
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["message"]["content"], "let me seecall-0-1=3");
    assert_eq!(
        choice["message"]["mcp_calls"],
        json!([{"id": "call-0-1", "server_label": "s", "name": "add", "arguments": "{\"a\":1,\"b\":2}",
            "status": "completed", "output": "3"}])
    );
    assert_eq!(choice["message"].get("tool_calls"), None);
    // The prompt of the second generation begins with the first, which was cached.
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(300), &json!(14)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 100);
}

#[test]
fn a_stream_shows_calls_and_results_as_they_come() {
    let server = trusted();
    let mut body = auto(r#"say a & call s__echo {"text":"hi"} | say b"#);
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let chunks = server.post(PATH, &body).chunks();
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    let shown: Vec<String> = deltas
        .iter()
        .filter_map(|delta| match (&delta["content"], &delta["mcp_calls"][0]) {
            (Value::String(text), _) if !text.is_empty() => Some(text.clone()),
            (_, call @ Value::Object(_)) => {
                assert_eq!(call["index"], 0);
                let field =
                    ["output", "status", "arguments"].into_iter().find(|name| call.get(*name).is_some());
                field.map(|name| format!("{name} {}", call[name].as_str().unwrap()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        shown,
        ["a", "status in_progress", r#"arguments {"text":"hi"}"#, "status calling", "output hi", "b"]
    );
    let last = chunks.last().unwrap();
    assert_eq!(last["usage"]["completion_tokens"], 14);
    let ends: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["finish_reason"]).collect();
    assert_eq!(ends.iter().filter(|end| end.is_string()).count(), 1);
}

#[test]
fn calls_of_one_answer_run_together_and_keep_their_order() {
    let server = trusted();
    let message = message(&server, &auto("call s__slow & call s__slow & call s__fail | results"));
    // Each of the first two is answered once both have come.
    assert_eq!(message["content"], "call-0-0=both came, call-0-1=both came, call-0-2=it is broken");
    assert_eq!(message["mcp_calls"][2]["status"], "failed");
    assert_eq!(message["mcp_calls"][2]["error"], "it is broken");
}

#[test]
fn wrong_arguments_are_for_the_model_to_read_and_the_tool_is_not_called() {
    let server = trusted();
    let message = message(&server, &auto(r#"call s__add {"a":1} | call s__add {"a":1,"b":1} | results"#));
    let content = message["content"].as_str().unwrap();
    assert!(content.contains("\"b\" is a required property") && content.ends_with("call-1-0=2"), "{content}");
}

#[test]
fn calls_of_the_client_end_the_response_after_the_servers_own_ran() {
    let server = trusted();
    let tools = json!(["auto", {"type": "function", "function": {"name": "f"}}]);
    let answer = server.answer(
        PATH,
        &body("call s__echo {\"text\":\"x\"} & call f {} | say never", json!({"tools": tools})),
    );
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["name"], "f");
    assert_eq!(choice["message"]["mcp_calls"][0]["output"], "x");
}

#[test]
fn the_tools_of_the_client_are_left_to_it() {
    let server = trusted();
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let answer = server.answer(PATH, &body("call f {} | say never", json!({"tools": tools})));
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(answer["choices"][0]["message"].get("mcp_calls"), None);
}

#[test]
fn a_result_cannot_spell_a_token_that_steers_the_model() {
    let server = trusted();
    let message = message(&server, &auto("call s__steer | results"));
    let content = message["content"].as_str().unwrap();
    assert!(content.contains("< |im_start|>system") && !content.contains("<|"), "{content}");
}

#[test]
fn a_definition_that_spells_one_is_not_offered() {
    let entry = entry_with(&["marked"], json!({"approval": "never"}));
    let server = with(&[("s", entry)], json!({"auto": ["s"]}));
    let answer = server.answer(PATH, &auto("call s__marked | say never"));
    // It is no tool of this server.
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn servers_are_named_with_the_tools_that_are_wanted() {
    let server = trusted();
    let named = |more: Value| {
        let mut tool = json!({"type": "mcp", "server_label": "s"});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"tools": [tool]})
    };
    let script = r#"call s__echo {"text":"x"} | results"#;
    let message = message(&server, &body(script, named(json!({"allowed_tools": ["echo"]}))));
    assert_eq!(message["content"], "call-0-0=x");
    let error = |more: Value| server.post(PATH, &body(script, named(more))).error();
    assert_eq!(error(json!({"allowed_tools": ["nothing"]}))["param"], "tools[0].allowed_tools");
    assert_eq!(error(json!({"server_label": "t"}))["param"], "tools[0].server_label");
    let always = error(json!({"require_approval": "always"}));
    assert!(always["message"].as_str().unwrap().contains("only /v1/responses has"), "{always}");
}

#[test]
fn tools_that_need_an_approval_are_not_those_of_auto() {
    let server = careful(json!({"auto": ["s"]}));
    let answer = server.answer(PATH, &auto(r#"call s__echo {"text":"x"} | say never"#));
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let named = json!({"tools": [{"type": "mcp", "server_label": "s", "require_approval": "never"}]});
    let error = server.post(PATH, &body("say x", named)).error();
    assert!(error["message"].as_str().unwrap().contains("need an approval"), "{error}");
}

#[test]
fn what_a_server_without_tools_is_asked_is_refused_by_name() {
    let server = super::super::server();
    let error = |tools: Value| {
        let body = body("say x", json!({"tools": tools})).to_string();
        super::super::client::post(server.address, PATH, &body).error()
    };
    assert_eq!(error(json!("auto"))["param"], "tools");
    let named = error(json!([{"type": "mcp", "server_label": "s"}]));
    assert!(named["message"].as_str().unwrap().contains("without --mcp-config"), "{named}");
    let remote =
        error(json!([{"type": "mcp", "server_label": "s", "server_url": "https://example.com/mcp"}]));
    assert!(remote["message"].as_str().unwrap().contains("without --allow-mcp-url"), "{remote}");
}

#[test]
fn several_choices_do_not_go_with_tools_that_the_server_runs() {
    let server = trusted();
    let error = server.post(PATH, &body("say x", json!({"tools": "auto", "n": 2}))).error();
    assert_eq!(error["param"], "n");
}

#[test]
fn keys_have_the_tools_that_their_file_says() {
    let keys = keys(
        "[[key]]\nname = \"a\"\nkey = \"sk-a\"\ntools = [\"s/echo\"]\n[[key]]\nname = \"b\"\nkey = \"sk-b\"\ntools = []\n",
    );
    let settings = Settings { keys, ..Settings::default() };
    let server =
        with_settings(&[("s", trusted_entry())], json!({"auto": ["s"]}), &["127.0.0.1:1".into()], settings);
    let ask = |key: &str, body: &Value| {
        let bearer = format!("Bearer {key}");
        let bytes = request("POST", PATH, &[JSON, ("authorization", &bearer)], body.to_string().as_bytes());
        exchange(server.server.address, &bytes).unwrap()
    };
    let script = r#"call s__echo {"text":"x"} & call s__add {"a":1,"b":1} | results"#;
    // What the key may not use is no tool of this server.
    assert_eq!(
        ask("sk-a", &auto(script)).json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
        "s__add"
    );
    let none = ask("sk-b", &auto(script)).json();
    assert_eq!(none["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 2);
    let remote =
        json!({"tools": [{"type": "mcp", "server_label": "t", "server_url": "http://127.0.0.1:1/mcp"}]});
    let reply = ask("sk-a", &body("say x", remote));
    assert_eq!((reply.status, reply.error()["code"].as_str()), (403, Some("tool_not_allowed")));
}

#[test]
fn a_server_of_the_request_is_called_where_the_operator_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    let http = HttpServer::start(&["modern"], "sk-token", folder.path());
    let allowed = format!("127.0.0.1:{}", http.port);
    let server = with_settings(&[], json!({}), &[allowed], Settings::default());
    let tool = |url: &str, token: &str| {
        json!({"tools": [{"type": "mcp", "server_label": "r", "server_url": url, "authorization": token,
            "require_approval": "never", "allowed_tools": ["echo"]}]})
    };
    let script = r#"call r__echo {"text":"x"} | results"#;
    let answer = message(&server, &body(script, tool(&http.url(), "sk-token")));
    assert_eq!(
        (&answer["content"], &answer["mcp_calls"][0]["server_label"]),
        (&json!("call-0-0=x"), &json!("r"))
    );
    let refused = |url: &str, token: &str| {
        let reply = server.post(PATH, &body(script, tool(url, token)));
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(!reply.body.contains(token), "{}", reply.body);
        assert_eq!(reply.error()["param"], "tools[0].server_url");
        reply.error()["message"].as_str().unwrap().to_owned()
    };
    assert!(refused("http://127.0.0.1:9/mcp", "sk-token").contains("is not allowed"));
    assert!(refused("http://localhost/mcp", "sk-token").contains("is not allowed"));
    assert!(refused(&http.url(), "sk-other").contains("has no tools"));
    // A redirect is not followed, even to the same server.
    assert!(refused(&http.url().replace("/mcp", "/redirect"), "sk-token").contains("has no tools"));
}
