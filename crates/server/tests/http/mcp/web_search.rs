//! The search of the web of Anthropic's and OpenAI's APIs, by a tool of a server over HTTP.

use omnibus_server::Settings;
use omnibus_testing::mcp::HttpServer;
use serde_json::{Value, json};

use super::super::client::{JSON, exchange, post, request};
use super::{WithTools, keys, trusted_entry, with, with_settings};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// A server whose search is that of a server over HTTP, which ends with this.
struct Searching {
    with: WithTools,
    _http: HttpServer,
    _folder: tempfile::TempDir,
}

fn searching(settings: Settings) -> Searching {
    let folder = tempfile::tempdir().unwrap();
    let http = HttpServer::start(&["searches"], "", folder.path());
    let entry = json!({"type": "http", "url": http.url(), "approval": "never", "timeout": 20});
    let with = with_settings(&[("web", entry)], json!({"webSearch": "web/find"}), &[], settings);
    Searching { with, _http: http, _folder: folder }
}

fn messages(script: &str, tool: Value) -> Value {
    let mut search = json!({"type": "web_search_20250305", "name": "web_search"});
    search.as_object_mut().unwrap().extend(tool.as_object().unwrap().clone());
    json!({"model": "m", "max_tokens": 50, "tools": [search],
        "messages": [{"role": "user", "content": format!("script: {script}")}]})
}

fn responses(script: &str, tool: Value) -> Value {
    let mut search = json!({"type": "web_search"});
    search.as_object_mut().unwrap().extend(tool.as_object().unwrap().clone());
    json!({"input": format!("script: {script}"), "tools": [search]})
}

const RUST: &str = r#"call web_search {"query":"rust"} | results"#;
/// What the model reads of the search for `rust`.
const READ: &str = "call-0-0=Title: rust one\nURL: https://docs.example.com/1\nabout rust\n\nTitle: rust two\nURL: https://example.org/2\nmore";

fn urls(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|page| page["url"].as_str().unwrap()).collect()
}

fn events(body: &omnibus_testing::client::Reply) -> Vec<Value> {
    body.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[test]
fn a_message_has_the_search_and_its_pages() {
    let server = searching(Settings::default());
    let message = server.with.answer(MESSAGES, &messages(RUST, json!({})));
    let [call, result, text] = message["content"].as_array().unwrap().as_slice() else { panic!("{message}") };
    let id = "srvtoolu_call-0-0";
    assert_eq!(
        call,
        &json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "rust"}})
    );
    assert_eq!((&result["type"], &result["tool_use_id"]), (&json!("web_search_tool_result"), &json!(id)));
    assert_eq!(urls(&result["content"]), ["https://docs.example.com/1", "https://example.org/2"]);
    assert_eq!(result["content"][0]["title"], "rust one");
    assert_eq!((&text["text"], &message["stop_reason"]), (&json!(READ), &json!("end_turn")));
    assert_eq!(message["usage"]["server_tool_use"], json!({"web_search_requests": 1}));
}

#[test]
fn a_stream_of_a_message_has_the_same_blocks() {
    let server = searching(Settings::default());
    let mut body = messages(RUST, json!({}));
    let whole = server.with.answer(MESSAGES, &body);
    body["stream"] = json!(true);
    let events = events(&server.with.post(MESSAGES, &body));
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let starts = of("content_block_start");
    let kinds: Vec<&str> =
        starts.iter().map(|event| event["content_block"]["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["server_tool_use", "web_search_tool_result", "text"]);
    assert_eq!(of("content_block_stop").len(), 3);
    let input = events.iter().find(|event| event["delta"]["type"] == "input_json_delta").unwrap();
    assert_eq!(input["delta"]["partial_json"], r#"{"query":"rust"}"#);
    assert_eq!(starts[1]["content_block"], whole["content"][1]);
    assert_eq!(of("message_delta")[0]["usage"]["server_tool_use"]["web_search_requests"], 1);
}

#[test]
fn an_earlier_search_is_a_call_in_the_prompt() {
    let server = searching(Settings::default());
    let first =
        server.with.answer(MESSAGES, &messages(r#"call web_search {"query":"rust"} | say one"#, json!({})));
    let mut body = messages("", json!({}));
    body["messages"] = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": "script: results"}]);
    assert_eq!(server.with.answer(MESSAGES, &body)["content"][0]["text"], READ);
    // Of a search by another server, the pages are text.
    body["messages"][1]["content"][1]["content"][0]["encrypted_content"] = json!("EqQB");
    assert_eq!(server.with.answer(MESSAGES, &body)["content"][0]["text"], Value::Null);
}

#[test]
fn uses_and_domains_are_limits() {
    let server = searching(Settings::default());
    let twice = r#"call web_search {"query":"a"} | call web_search {"query":"b"} | results"#;
    let message = server.with.answer(MESSAGES, &messages(twice, json!({"max_uses": 1})));
    assert_eq!(
        message["content"][3]["content"],
        json!({"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"})
    );
    assert_eq!(message["usage"]["server_tool_use"]["web_search_requests"], 1);
    let last = message["content"][4]["text"].as_str().unwrap();
    assert!(last.contains("the request has no more"), "{last}");
    for tool in [json!({"allowed_domains": ["example.com"]}), json!({"blocked_domains": ["example.org"]})] {
        let message = server.with.answer(MESSAGES, &messages(RUST, tool));
        assert_eq!(urls(&message["content"][1]["content"]), ["https://docs.example.com/1"]);
    }
}

#[test]
fn a_search_that_fails_is_an_error_that_the_model_reads() {
    let server = searching(Settings::default());
    for (call, part) in [
        (r#"call web_search {"query":"fail"}"#, "it is broken"),
        (r#"call web_search {"q":1}"#, "\"query\" is a required property"),
    ] {
        let message = server.with.answer(MESSAGES, &messages(&format!("{call} | results"), json!({})));
        assert_eq!(message["content"][1]["content"]["error_code"], "unavailable");
        assert!(message["content"][2]["text"].as_str().unwrap().contains(part), "{message}");
        let response = server.with.answer(RESPONSES, &responses(&format!("{call} | results"), json!({})));
        assert_eq!(response["output"][0]["status"], "failed");
    }
}

#[test]
fn a_response_has_the_search_as_an_item() {
    let server = searching(Settings::default());
    let mut body = responses(RUST, json!({"filters": {"allowed_domains": ["example.org"]}}));
    body["include"] = json!(["web_search_call.action.sources", "web_search_call.results"]);
    let response = server.with.answer(RESPONSES, &body);
    let item = &response["output"][0];
    assert_eq!((&item["type"], &item["status"]), (&json!("web_search_call"), &json!("completed")));
    let action = json!({"type": "search", "query": "rust", "queries": ["rust"],
        "sources": [{"type": "url", "url": "https://example.org/2"}]});
    assert_eq!(item["action"], action);
    assert_eq!(
        item["results"],
        json!([{"url": "https://example.org/2", "title": "rust two", "snippet": "more"}])
    );
    body["include"] = json!([]);
    body["stream"] = json!(true);
    let kinds: Vec<String> = events(&server.with.post(RESPONSES, &body))
        .iter()
        .map(|event| event["type"].as_str().unwrap().trim_start_matches("response.").to_owned())
        .collect();
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "output_item.done",
        "output_item.added",
    ];
    assert_eq!(kinds[..expected.len()], expected);
}

#[test]
fn a_conversation_goes_on_with_what_was_read() {
    let server = searching(Settings::default());
    let first =
        server.with.answer(RESPONSES, &responses(r#"call web_search {"query":"rust"} | say one"#, json!({})));
    let mut body = responses("results", json!({}));
    let read = |response: &Value| response["output"][0]["content"][0]["text"].as_str().unwrap().to_owned();
    body["previous_response_id"] = first["id"].clone();
    let found = READ.split_once('=').unwrap().1;
    assert!(read(&server.with.answer(RESPONSES, &body)).ends_with(found));
    // Without a stored response, the client sends the items back.
    let mut input = first["output"].as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": "script: results"}));
    let body = json!({"input": input, "tools": [{"type": "web_search"}]});
    assert!(read(&server.with.answer(RESPONSES, &body)).ends_with(found));
}

#[test]
fn a_request_that_needs_a_search_is_refused_where_there_is_none() {
    let plain = super::super::server();
    let others = with(&[("s", trusted_entry())], json!({}));
    for address in [plain.address, others.server.address] {
        for (path, mut body) in
            [(MESSAGES, messages(RUST, json!({}))), (RESPONSES, responses(RUST, json!({})))]
        {
            let (tool, search) =
                (json!({"type": "tool", "name": "web_search"}), json!({"type": "web_search"}));
            body["tool_choice"] = if path == MESSAGES { tool } else { search };
            let reply = post(address, path, &body.to_string());
            assert_eq!(reply.status, 400, "{}", reply.body);
            assert!(
                reply.body.contains("`tools[0].type`") && reply.body.contains("webSearch"),
                "{}",
                reply.body
            );
        }
        // Agents offer the search to every server, beside their own tools or alone: it is left out.
        let alone = messages("say x", json!({}));
        assert_eq!(post(address, MESSAGES, &alone.to_string()).json()["content"][0]["text"], "x");
        let function = json!({"name": "f", "input_schema": {"type": "object"}});
        let mut body = messages("say x", json!({}));
        body["tools"].as_array_mut().unwrap().push(function);
        assert_eq!(post(address, MESSAGES, &body.to_string()).json()["content"][0]["text"], "x");
        body["tool_choice"] = json!({"type": "tool", "name": "web_search"});
        assert_eq!(post(address, MESSAGES, &body.to_string()).status, 400);
        let mut body = responses("say x", json!({}));
        body["tools"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "function", "name": "f", "parameters": {}}));
        assert_eq!(post(address, RESPONSES, &body.to_string()).status, 200);
        body["tool_choice"] = json!({"type": "web_search"});
        assert_eq!(post(address, RESPONSES, &body.to_string()).status, 400);
    }
}

#[test]
fn a_key_may_search_with_its_own_tools_alone() {
    let text = "[[key]]\nname = \"a\"\nkey = \"sk-a\"\ntools = [\"web/find\"]\n\n[[key]]\nname = \"b\"\nkey = \"sk-b\"\ntools = [\"other\"]\n";
    let server = searching(Settings { keys: keys(text), ..Settings::default() });
    let reply = |key: &str| {
        let bearer = format!("Bearer {key}");
        let mut body = messages(RUST, json!({}));
        body["tool_choice"] = json!({"type": "tool", "name": "web_search"});
        let body = body.to_string();
        let bytes = request("POST", MESSAGES, &[JSON, ("authorization", &bearer)], body.as_bytes());
        exchange(server.with.server.address, &bytes).unwrap().status
    };
    assert_eq!((reply("sk-a"), reply("sk-b")), (200, 403));
}
