//! Fields of requests that change what the embedded model is given, or may generate.

use serde_json::{Value, json};

use super::client::post;
use super::process::Server;

fn ask(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    let reply = post(server.address, path, &body.to_string());
    (reply.status, reply.json())
}

#[test]
fn a_requests_own_template_is_rendered_where_it_is_trusted() {
    let template = "{% for message in messages %}[{{ message.content }}]{% endfor %}";
    let messages = json!([{"role": "user", "content": "the bus"}]);
    let body = json!({"messages": messages, "chat_template": template});
    let refusing = Server::start(&[]);
    for path in ["/apply-template", "/tokenize", "/v1/chat/completions"] {
        let (status, reply) = ask(&refusing, path, &body);
        assert_eq!((status, &reply["error"]["param"]), (400, &json!("chat_template")), "{path}: {reply}");
    }
    let server = Server::start(&["--trust-request-chat-template"]);
    assert_eq!(ask(&server, "/apply-template", &body), (200, json!({"prompt": "[the bus]"})));
    let (_, tokenized) = ask(&server, "/tokenize", &body);
    let (_, text) = ask(&server, "/tokenize", &json!({"prompt": "[the bus]", "add_special_tokens": false}));
    assert_eq!(tokenized["tokens"], text["tokens"]);
    let mut chat = body;
    chat["max_tokens"] = 1.into();
    let (status, reply) = ask(&server, "/v1/chat/completions", &chat);
    assert_eq!((status, &reply["usage"]["prompt_tokens"]), (200, &text["count"]), "{reply}");
    for broken in ["{% for", "{{ raise_exception('no') }}", "{% for a in range(10**9) %}{% endfor %}"] {
        chat["chat_template"] = broken.into();
        let (status, reply) = ask(&server, "/v1/chat/completions", &chat);
        assert_eq!(status, 400, "{broken}: {reply}");
    }
}

#[test]
fn bad_words_are_not_generated() {
    let server = Server::start(&[]);
    let generate = |bad: &Value| {
        let body = json!({
            "prompt": "The bus stops", "max_tokens": 24, "temperature": 0, "bad_words": bad, "return_token_ids": true,
        });
        let (status, reply) = ask(&server, "/v1/completions", &body);
        assert_eq!(status, 200, "{reply}");
        let ids: Vec<u64> = serde_json::from_value(reply["choices"][0]["token_ids"].clone()).unwrap();
        (reply["choices"][0]["text"].as_str().unwrap().to_owned(), ids)
    };
    let (text, ids) = generate(&Value::Null);
    let word = text.split_whitespace().nth(1).unwrap().to_owned();
    let (_, tokenized) =
        ask(&server, "/tokenize", &json!({"prompt": format!(" {word}"), "add_special_tokens": false}));
    let banned: Vec<u64> = serde_json::from_value(tokenized["tokens"].clone()).unwrap();
    let has = |ids: &[u64]| ids.windows(banned.len()).any(|window| window == banned);
    assert!(has(&ids), "{text}: {word}");
    let (other, ids) = generate(&json!([word]));
    assert!(!has(&ids), "{other}: {word}");
    assert_eq!(generate(&json!([])).0, text);
    let (status, reply) = ask(&server, "/v1/completions", &json!({"prompt": "a", "bad_words": [" "]}));
    assert_eq!((status, &reply["error"]["param"]), (400, &json!("bad_words")), "{reply}");
}
