//! The page: its files, what browsers may do with them, and the chat that it shows.

use omnibus_server::Settings;
use serde_json::{Value, json};

use super::client::{JSON, Reply, exchange, get, post, request};
use super::mcp::{WithTools, careful};
use super::{server, server_with, server_with_keys};

/// The JSON of each event.
fn events(reply: &Reply) -> Vec<Value> {
    let data = reply.body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_type<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == name).collect()
}

#[test]
fn every_file_that_the_page_names_is_served_and_may_run_nothing_else() {
    let server = server();
    let page = get(server.address, "/ui/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    for name in page.body.split('"').filter_map(|part| part.strip_prefix("./")) {
        let file = get(server.address, &format!("/ui/{name}"));
        assert_eq!(file.status, 200, "{name}");
        let tag = file.header("etag").unwrap().to_owned();
        let again = request("GET", &format!("/ui/{name}"), &[("if-none-match", &tag)], b"");
        let again = exchange(server.address, &again).unwrap();
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{name}");
    }
    let moved = get(server.address, "/ui");
    assert_eq!((moved.status, moved.header("location")), (308, Some("ui/")));
    assert_eq!(get(server.address, "/ui/none.js").status, 404);
}

#[test]
fn an_answer_comes_as_text_and_as_html() {
    let server = server();
    let body = json!({"messages": [{"role": "user", "content": "*a* <b>"}]});
    let reply = post(server.address, "/ui/chat", &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let events = events(&reply);
    assert_eq!(events[0], json!({"type": "model", "model": "scripted"}));
    let text: String = of_type(&events, "text").iter().map(|event| event["text"].as_str().unwrap()).collect();
    let html: String =
        of_type(&events, "block").iter().map(|event| event["html"].as_str().unwrap()).collect();
    assert!(!text.is_empty() && html.contains("<p>"), "{events:?}");
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["finish_reason"]), (&json!("usage"), &json!("length")));
    assert!(last["usage"]["completion_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn what_the_page_cannot_show_is_refused_by_name() {
    let server = server();
    let reply =
        post(server.address, "/ui/chat", r#"{"messages": [{"role": "user", "content": "a"}], "n": 2}"#);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("n")), "{}", reply.body);
    let reply = post(server.address, "/ui/chat", r#"{"messages": [], "colour": 1}"#);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("colour")), "{}", reply.body);
}

#[test]
fn the_page_needs_no_key_and_its_data_does() {
    let server = server_with_keys(&["secret"]);
    for path in ["/ui", "/ui/", "/ui/main.js"] {
        assert!(get(server.address, path).status < 400, "{path}");
    }
    for path in ["/ui/settings", "/ui/none.js", "/v1/status"] {
        assert_eq!(get(server.address, path).status, 401, "{path}");
    }
    let chat = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
    assert_eq!(post(server.address, "/ui/chat", chat).status, 401);
    let headers = [("authorization", "Bearer secret"), JSON];
    let with_key = exchange(server.address, &request("POST", "/ui/chat", &headers, chat.as_bytes())).unwrap();
    assert_eq!(with_key.status, 200, "{}", with_key.body);
}

/// The frames of a chat.
fn frames(with: &WithTools, body: &Value) -> Vec<Value> {
    let reply = post(with.server.address, "/ui/chat", &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    events(&reply)
}

#[test]
fn a_user_of_the_page_approves_or_declines_a_call() {
    let with = careful(json!({"auto": ["s"]}));
    let script = r#"script: call s__echo {"text":"x"} & call s__add {"a":1,"b":1} | results"#;
    let messages = json!([{"role": "user", "content": script}]);
    let first = frames(&with, &json!({"messages": messages, "tools": "auto"}));
    let waiting = of_type(&first, "approval");
    assert_eq!((&waiting[0]["name"], &waiting[0]["server"]), (&json!("echo"), &json!("s")));
    assert_eq!((waiting.len(), &waiting[0]["arguments"]), (2, &json!(r#"{"text":"x"}"#)));
    let decided =
        json!([{"id": waiting[0]["id"], "approve": true}, {"id": waiting[1]["id"], "approve": false}]);
    let body = json!({"messages": messages, "tools": "auto", "approvals": decided});
    let second = frames(&with, &body);
    assert_eq!(of_type(&second, "result")[0]["text"], "x");
    let text: String = of_type(&second, "text").iter().map(|frame| frame["text"].as_str().unwrap()).collect();
    assert!(text.contains("=The user declined this call") && text.contains("=x"), "{text}");
    // Each is used once, by the one who has it.
    for decisions in [decided, json!([{"id": "mcpr_none", "approve": true}])] {
        let body = json!({"messages": messages, "tools": "auto", "approvals": decisions});
        let reply = post(with.server.address, "/ui/chat", &body.to_string());
        assert_eq!(
            (reply.status, &reply.error()["code"]),
            (400, &json!("approval_not_found")),
            "{}",
            reply.body
        );
    }
    let body = json!({"messages": messages, "approvals": [{"id": "x", "approve": 1}]});
    let reply = post(with.server.address, "/ui/chat", &body.to_string());
    assert_eq!(reply.error()["param"], "approvals[0].approve");
}

#[test]
fn a_page_of_another_origin_may_not_chat() {
    let server = server();
    let headers = [("origin", "http://evil.example"), JSON];
    let reply = exchange(server.address, &request("POST", "/ui/chat", &headers, b"{}")).unwrap();
    assert_eq!(reply.status, 403, "{}", reply.body);
    let own = format!("http://{}", server.address);
    let headers = [("origin", own.as_str()), JSON];
    let chat = br#"{"messages": [{"role": "user", "content": "a"}]}"#;
    assert_eq!(exchange(server.address, &request("POST", "/ui/chat", &headers, chat)).unwrap().status, 200);
}

#[test]
fn a_server_without_a_page_says_so() {
    let server = server_with(Settings { page_settings: None, ..Settings::default() });
    for path in ["/ui", "/ui/", "/ui/main.js", "/ui/settings"] {
        let reply = get(server.address, path);
        assert_eq!(reply.status, 404, "{path}");
        assert!(reply.body.contains("--ui off"), "{}", reply.body);
    }
}
