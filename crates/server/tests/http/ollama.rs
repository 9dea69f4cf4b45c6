//! Ollama's API: lines, whole answers, lists, errors, and who may use it.

use expect_test::{Expect, expect};
use omnibus_server::Settings;
use serde_json::{Value, json};

use super::client::{Reply, exchange, get, post, request};
use super::{Server, server, server_with, server_with_keys};

fn send(server: &Server, path: &str, body: Value) -> Reply {
    post(server.address, path, &body.to_string())
}

fn say(words: &str, fields: Value) -> Value {
    let mut body = json!({"model": "scripted", "messages": [{"role": "user", "content": words}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn complete(prompt: &str, fields: Value) -> Value {
    let mut body = json!({"model": "scripted", "prompt": prompt});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// The lines of an answer, whose times are checked and not shown.
fn lines(reply: &Reply) -> String {
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        if let Some(created) = line.get_mut("created_at") {
            assert!(created.as_str().unwrap().ends_with('Z'), "{created}");
            *created = "NOW".into();
        }
        let mut take = |name: &str| line.get_mut(name).map(std::mem::take).and_then(|value| value.as_u64());
        if let Some(total) = take("total_duration") {
            let parts = ["load_duration", "prompt_eval_duration", "eval_duration"];
            assert_eq!(
                total,
                parts.iter().map(|name| take(name).unwrap()).sum::<u64>(),
                "the parts are all of it"
            );
        }
        line.to_string()
    };
    format!("{} {}\n", reply.status, reply.header("content-type").unwrap_or_default())
        + &reply.body.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn check(reply: &Reply, expected: Expect) {
    expected.assert_eq(&lines(reply));
}

#[test]
fn a_chat_is_lines_unless_stream_is_false() {
    let server = server();
    check(
        &send(&server, "/api/chat", say("hi", json!({"options": {"num_predict": 2}}))),
        expect![[r#"
            200 application/x-ndjson
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":"w0 "},"done":false}
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":"w1 "},"done":false}
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":""},"done":true,"done_reason":"length","total_duration":null,"load_duration":null,"prompt_eval_count":1,"prompt_eval_duration":null,"eval_count":2,"eval_duration":null}"#]],
    );
    check(
        &send(&server, "/api/chat", say("hi", json!({"options": {"num_predict": 2}, "stream": false}))),
        expect![[r#"
            200 application/json
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":"w0 w1 "},"done":true,"done_reason":"length","total_duration":null,"load_duration":null,"prompt_eval_count":1,"prompt_eval_duration":null,"eval_count":2,"eval_duration":null}"#]],
    );
}

#[test]
fn calls_are_whole_objects_and_reasoning_is_apart() {
    let server = server();
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    check(
        &send(&server, "/api/chat", say("tools", json!({"tools": tools}))),
        expect![[r#"
            200 application/x-ndjson
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":"calling"},"done":false}
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":"","tool_calls":[{"id":"call-1","function":{"index":0,"name":"f","arguments":{"a":1}}}]},"done":false}
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":null,"load_duration":null,"prompt_eval_count":1,"prompt_eval_duration":null,"eval_count":9,"eval_duration":null}"#]],
    );
    check(
        &send(&server, "/api/chat", say("tools", json!({"tools": tools, "stream": false, "think": false}))),
        expect![[r#"
            200 application/json
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":"calling","tool_calls":[{"id":"call-1","function":{"index":0,"name":"f","arguments":{"a":1}}}]},"done":true,"done_reason":"stop","total_duration":null,"load_duration":null,"prompt_eval_count":1,"prompt_eval_duration":null,"eval_count":9,"eval_duration":null}"#]],
    );
}

#[test]
fn a_completion_returns_the_tokens_that_continue_it() {
    let server = server();
    let first = send(&server, "/api/generate", complete("hi", json!({"options": {"num_predict": 1}})));
    check(
        &first,
        expect![[r#"
            200 application/x-ndjson
            {"model":"scripted","created_at":"NOW","response":"w0 ","done":false}
            {"model":"scripted","created_at":"NOW","response":"","done":true,"done_reason":"length","context":[56,5],"total_duration":null,"load_duration":null,"prompt_eval_count":1,"prompt_eval_duration":null,"eval_count":1,"eval_duration":null}"#]],
    );
    assert_eq!(server.submitted().tokens, None);
    let more = json!({"options": {"num_predict": 1}, "stream": false, "context": [56, 5]});
    check(
        &send(&server, "/api/generate", complete("more", more)),
        expect![[r#"
            200 application/json
            {"model":"scripted","created_at":"NOW","response":"w0 ","done":true,"done_reason":"length","context":[56,5,172,5],"total_duration":null,"load_duration":null,"prompt_eval_count":3,"prompt_eval_duration":null,"eval_count":1,"eval_duration":null}"#]],
    );
    assert_eq!(server.submitted().tokens, Some(3), "the earlier tokens come first");
    for fields in [json!({"raw": true}), json!({"suffix": "end"})] {
        let raw = send(&server, "/api/generate", complete("hi", fields));
        assert!(raw.status == 200 && !raw.body.contains("context"), "{}", raw.body);
    }
}

#[test]
fn log_probabilities_are_lists_of_tokens() {
    let server = server();
    let fields = json!({"options": {"num_predict": 1}, "stream": false, "logprobs": true, "top_logprobs": 1});
    let answer = send(&server, "/api/generate", complete("hi", fields)).json();
    let expected = json!([{"token": "w0 ", "logprob": -0.5, "bytes": [119, 48, 32],
        "top_logprobs": [{"token": "c0", "logprob": -1.0, "bytes": [99, 48]}]}]);
    assert_eq!(answer["logprobs"], expected);
}

#[test]
fn a_request_without_input_loads_or_unloads() {
    let server = server();
    for (path, body, reason) in [
        ("/api/chat", json!({"model": "scripted", "messages": []}), "load"),
        ("/api/chat", json!({"model": "scripted:latest", "messages": [], "keep_alive": "0s"}), "unload"),
        ("/api/generate", json!({"model": "Scripted", "prompt": "", "keep_alive": -1}), "load"),
        ("/api/generate", json!({"model": "alias/one", "keep_alive": 0}), "unload"),
    ] {
        let answer = send(&server, path, body.clone());
        assert_eq!((answer.status, &answer.json()["done_reason"]), (200, &json!(reason)), "{body}");
        assert_eq!((&answer.json()["done"], &answer.json()["model"]), (&json!(true), &body["model"]));
    }
    assert!(server.request_events.try_recv().is_err(), "nothing is generated");
}

#[test]
fn names_have_any_case_and_a_tag() {
    let server = server();
    for name in ["scripted", "SCRIPTED", "scripted:latest", "library/scripted", "alias/one:latest"] {
        let reply = send(&server, "/api/chat", say("hi", json!({"model": name, "stream": false})));
        assert_eq!((reply.status, reply.json()["model"].as_str()), (200, Some(name)), "{}", reply.body);
    }
}

#[test]
fn models_are_listed_and_described() {
    let server = server();
    let tags = get(server.address, "/api/tags").json();
    let names: Vec<&Value> = tags["models"].as_array().unwrap().iter().map(|model| &model["model"]).collect();
    assert_eq!(names, [&json!("scripted:latest"), &json!("alias/one:latest")]);
    let first = &tags["models"][0];
    let details = json!({"parent_model": "", "format": "safetensors", "family": "script", "families": ["script"],
        "parameter_size": "0K", "quantization_level": ""});
    assert_eq!((&first["details"], &first["modified_at"]), (&details, &json!("1970-01-01T00:00:01Z")));
    assert!(first["digest"].as_str().is_some_and(|digest| digest.len() == 64), "{first}");
    let loaded = get(server.address, "/api/ps").json();
    assert_eq!(loaded["models"][0]["digest"], first["digest"]);
    assert_eq!(loaded["models"][0]["context_length"], 4096);
    for field in ["model", "name"] {
        let shown = send(&server, "/api/show", json!({field: "scripted"})).json();
        assert_eq!(shown["capabilities"], json!(["completion", "tools", "insert", "thinking"]));
        assert_eq!(shown["model_info"]["general.architecture"], "script");
        assert_eq!(shown["model_info"]["script.context_length"], 4096);
        assert_eq!(shown["parameters"], format!("{:<30} 4096", "num_ctx"));
        assert!(shown["template"].as_str().unwrap().contains(".Suffix"));
    }
    assert_eq!(get(server.address, "/api/version").json(), json!({"version": "0.40.4"}));
    for path in ["/", "/api/version", "/api/tags"] {
        assert_eq!(exchange(server.address, &request("HEAD", path, &[], b"")).unwrap().status, 200, "{path}");
    }
    assert_eq!(get(server.address, "/").body, "Ollama is running");
}

fn check_error(reply: &Reply, status: u16, text: &str) {
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (status, Some("application/json")),
        "{}",
        reply.body
    );
    let body = reply.json();
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    assert!(body["error"].as_str().unwrap().contains(text), "{text} in {body}");
}

#[test]
fn errors_are_texts_that_say_what_to_do() {
    let server = server();
    let missing = json!({"model": "other"});
    check_error(
        &send(&server, "/api/chat", say("hi", missing.clone())),
        404,
        "model \"other\" not found, try pulling it first",
    );
    check_error(&send(&server, "/api/generate", complete("hi", missing.clone())), 404, "not found");
    check_error(&send(&server, "/api/chat", missing.clone()), 404, "not found");
    check_error(&send(&server, "/api/show", missing.clone()), 404, "model 'other' not found");
    check_error(&send(&server, "/api/show", json!({})), 400, "`model` is missing");
    check_error(&send(&server, "/api/chat", json!({"messages": []})), 400, "model is required");
    check_error(
        &send(&server, "/api/pull", json!({"model": "org/name:latest"})),
        400,
        "`omnibus pull org/name`",
    );
    check_error(
        &send(&server, "/api/copy", json!({"source": "scripted", "destination": "x"})),
        403,
        "--served-model-name",
    );
    check_error(&send(&server, "/api/create", json!({"model": "x"})), 403, "omnibus convert");
    check_error(&send(&server, "/api/push", json!({"model": "x"})), 403, "registry");
    check_error(&get(server.address, "/api/nothing"), 404, "not found");
    check_error(&get(server.address, "/api/chat"), 405, "has no method GET");
    check_error(&post(server.address, "/api/chat", "{"), 400, "not valid JSON");
    for path in ["/api/embed", "/api/embeddings"] {
        check_error(&send(&server, path, missing.clone()), 404, "not found");
        check_error(
            &send(&server, path, json!({"model": "scripted", "dimensions": 3, "input": "a", "prompt": "a"})),
            400,
            "between 1 and 2",
        );
    }
    let delete = |model: &str| {
        let body = json!({"model": model}).to_string();
        exchange(server.address, &request("DELETE", "/api/delete", &[], body.as_bytes())).unwrap()
    };
    check_error(&delete("scripted"), 403, "it is served");
    check_error(&delete("other"), 404, "model 'other' not found");
    for (field, value) in [
        ("format", json!("yaml")),
        ("options", json!({"temperature": "hot"})),
        ("think", json!("a lot")),
        ("keep_alive", json!("soon")),
        ("messages", json!([{"role": "cook", "content": "a"}])),
        ("tools", json!([{"type": "function", "function": {}}])),
    ] {
        check_error(&send(&server, "/api/chat", say("hi", json!({field: value}))), 400, field);
    }
    check_error(&send(&server, "/api/chat", say("busy", json!({}))), 429, "queue is full");
    check_error(&send(&server, "/api/chat", say("fail", json!({}))), 504, "timed out");
}

#[test]
fn a_failure_after_the_first_line_is_the_last_line() {
    let server = server();
    check(
        &send(&server, "/api/chat", say("break", json!({}))),
        expect![[r#"
            200 application/x-ndjson
            {"model":"scripted","created_at":"NOW","message":{"role":"assistant","content":"w0 "},"done":false}
            {"error":"the engine failed: broke"}"#]],
    );
    check_error(&send(&server, "/api/chat", say("break", json!({"stream": false}))), 500, "broke");
}

#[test]
fn a_pull_of_a_served_model_succeeds_at_once() {
    let server = server();
    check(
        &send(&server, "/api/pull", json!({"model": "scripted"})),
        expect![[r#"
            200 application/x-ndjson
            {"status":"pulling manifest"}
            {"status":"success"}"#]],
    );
    let whole = send(&server, "/api/pull", json!({"name": "scripted", "stream": false}));
    assert_eq!(whole.json(), json!({"status": "success"}));
}

#[test]
fn a_body_is_json_whatever_its_type_says() {
    let server = server();
    let body = say("hi", json!({"stream": false})).to_string();
    for headers in [&[][..], &[("content-type", "application/x-www-form-urlencoded")]] {
        let reply =
            exchange(server.address, &request("POST", "/api/chat", headers, body.as_bytes())).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    // What a browser's page may send without a preflight is refused by its origin.
    let foreign = [("origin", "https://evil.example"), ("content-type", "text/plain")];
    let reply = exchange(server.address, &request("POST", "/api/chat", &foreign, body.as_bytes())).unwrap();
    check_error(&reply, 403, "evil.example");
}

#[test]
fn keys_hosts_and_limits_are_those_of_other_routes() {
    let keyed = server_with_keys(&["secret"]);
    for path in ["/api/tags", "/api/ps", "/api/version"] {
        check_error(&get(keyed.address, path), 401, "API key");
    }
    check_error(&send(&keyed, "/api/chat", say("hi", json!({}))), 401, "API key");
    let bearer = [("authorization", "Bearer secret")];
    let body = say("hi", json!({})).to_string();
    let reply = exchange(keyed.address, &request("POST", "/api/chat", &bearer, body.as_bytes())).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(keyed.submitted().tenant, "key-1");
    let host = String::from_utf8(request("GET", "/api/tags", &[], b""))
        .unwrap()
        .replace("localhost", "evil.example");
    check_error(&exchange(keyed.address, host.as_bytes()).unwrap(), 403, "evil.example");
    let limits = omnibus_server::Limits { body_bytes: 64, ..omnibus_server::Limits::default() };
    let small = server_with(Settings { limits, ..Settings::default() });
    check_error(&send(&small, "/api/chat", say(&"long ".repeat(50), json!({}))), 413, "64 bytes");
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    let server = server();
    let body = say("forever", json!({})).to_string();
    super::client::send_and_leave(server.address, &request("POST", "/api/chat", &[], body.as_bytes()), 200);
    let id = server.submitted().id;
    assert_eq!(server.next_event(), super::scripted::RequestEvent::Dropped(id));
}
