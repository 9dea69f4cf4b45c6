//! Fields of chat and text completions that change what an answer shows.

use serde_json::{Value, json};

use super::client::post;
use super::{Server, server};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn with(mut body: Value, fields: Value) -> String {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string()
}

fn chat(word: &str, fields: Value) -> String {
    with(json!({"messages": [{"role": "user", "content": word}], "max_tokens": 2}), fields)
}

fn text(prompt: &str, fields: Value) -> String {
    with(json!({"prompt": prompt, "max_tokens": 2}), fields)
}

fn full(server: &Server, path: &str, body: &str) -> Value {
    let reply = post(server.address, path, body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

fn chunks(server: &Server, path: &str, body: &str) -> Vec<Value> {
    let reply = post(server.address, path, body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let events = reply.events();
    events
        .iter()
        .filter(|event| *event != "[DONE]")
        .map(|event| serde_json::from_str(event).unwrap())
        .collect()
}

#[test]
fn every_chunk_has_the_usage_so_far() {
    let server = server();
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let stream = json!({"stream": true, "stream_options": options});
    for (path, body) in [(CHAT, chat("hi you", stream.clone())), (TEXT, text("hi you", stream.clone()))] {
        let chunks = chunks(&server, path, &body);
        let counts: Vec<(u64, u64)> = chunks
            .iter()
            .map(|chunk| &chunk["usage"])
            .map(|usage| {
                (usage["prompt_tokens"].as_u64().unwrap(), usage["completion_tokens"].as_u64().unwrap())
            })
            .collect();
        let texts = &counts[counts.len() - 4..];
        assert_eq!(texts, [(2, 1), (2, 2), (2, 2), (2, 2)], "{path}");
        assert_eq!(chunks.last().unwrap()["choices"], json!([]));
    }
    let without = json!({"stream": true, "stream_options": {"continuous_usage_stats": true}});
    assert!(chunks(&server, CHAT, &chat("hi", without)).iter().all(|chunk| chunk.get("usage").is_none()));
}

#[test]
fn ids_of_tokens_are_returned() {
    let server = server();
    let ids = json!({"return_token_ids": true});
    let whole = full(&server, CHAT, &chat("hi you", ids.clone()));
    assert_eq!(whole["choices"][0]["token_ids"], json!([5, 5]));
    assert_eq!(whole["prompt_token_ids"].as_array().unwrap().len(), 2);
    let streamed = chunks(&server, CHAT, &chat("hi you", json!({"return_token_ids": true, "stream": true})));
    assert_eq!(streamed[0]["prompt_token_ids"], whole["prompt_token_ids"]);
    let sent: Vec<&Value> =
        streamed.iter().filter_map(|chunk| chunk["choices"][0]["token_ids"].as_array()).flatten().collect();
    assert_eq!(sent, [&json!(5), &json!(5)]);
    assert!(streamed[1..].iter().all(|chunk| chunk.get("prompt_token_ids").is_none()));

    let mut two = json!({"prompt": ["a", "b c"], "max_tokens": 1, "n": 2});
    two["return_token_ids"] = true.into();
    let whole = full(&server, TEXT, &two.to_string());
    let lengths: Vec<usize> =
        (0..4).map(|at| whole["choices"][at]["prompt_token_ids"].as_array().unwrap().len()).collect();
    assert_eq!(lengths, [1, 1, 2, 2]);
    assert_eq!(whole["choices"][3]["token_ids"], json!([5]));
    let plain = full(&server, TEXT, &text("a", json!({})));
    assert!(plain["choices"][0].get("token_ids").is_none());
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]);
    let refused =
        post(server.address, CHAT, &json!({"messages": image, "return_token_ids": true}).to_string());
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("return_token_ids")));
}

#[test]
fn tokens_of_log_probabilities_are_named_by_their_ids() {
    let server = server();
    let fields = json!({"logprobs": true, "top_logprobs": 1, "return_tokens_as_token_ids": true});
    let token = &full(&server, CHAT, &chat("hi", fields))["choices"][0]["logprobs"]["content"][0];
    assert_eq!(
        (&token["token"], &token["top_logprobs"][0]["token"]),
        (&json!("token_id:5"), &json!("token_id:0"))
    );
    let fields = json!({"logprobs": 1, "return_tokens_as_token_ids": true});
    let logprobs = &full(&server, TEXT, &text("hi", fields))["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"][0], "token_id:5");
    assert_eq!(logprobs["top_logprobs"][0], json!({"token_id:0": -1.0, "token_id:5": -0.5}));
}

#[test]
fn log_probabilities_of_text_always_have_the_token_itself() {
    let server = server();
    for count in [0, 1] {
        let answer = full(&server, TEXT, &text("hi", json!({"logprobs": count})));
        let logprobs = &answer["choices"][0]["logprobs"];
        let top = logprobs["top_logprobs"][0].as_object().unwrap();
        assert_eq!((top["w0 "].as_f64(), top.len()), (Some(-0.5), count + 1));
    }
}

#[test]
fn reasoning_is_left_out_where_it_is_not_wanted() {
    let server = server();
    let omit = json!({"include_reasoning": false});
    let message = &full(&server, CHAT, &chat("tools", omit.clone()))["choices"][0]["message"];
    assert_eq!((message.get("reasoning"), message.get("reasoning_content")), (None, None));
    assert_eq!(message["content"], "calling");
    let streamed = chunks(&server, CHAT, &chat("tools", json!({"include_reasoning": false, "stream": true})));
    assert!(streamed.iter().all(|chunk| chunk["choices"][0]["delta"].get("reasoning").is_none()));
    let shown = chunks(&server, CHAT, &chat("tools", json!({"stream": true})));
    assert_eq!(shown.len(), streamed.len() + 1);
}

#[test]
fn log_probabilities_of_the_prompt_are_returned_as_vllm_does() {
    let server = server();
    let fields = json!({"prompt_logprobs": 1});
    let own = json!({"logprob": -0.5, "rank": null, "decoded_token": "you"});
    let ranked = json!({"logprob": -1.0, "rank": 1, "decoded_token": "c0"});
    let expected = json!([null, {"0": ranked, "5": own}]);
    assert_eq!(full(&server, CHAT, &chat("hi you", fields.clone()))["prompt_logprobs"], expected);
    let choice = &full(&server, TEXT, &text("hi you", fields))["choices"][0];
    assert_eq!((&choice["prompt_logprobs"], &choice["logprobs"]), (&expected, &json!(null)));
    for (path, body) in [
        (CHAT, chat("hi", json!({"prompt_logprobs": 1, "stream": true}))),
        (TEXT, text("hi", json!({"prompt_logprobs": 1, "echo": true, "logprobs": 1}))),
        (TEXT, text("hi", json!({"prompt_logprobs": 21}))),
    ] {
        let refused = post(server.address, path, &body);
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("prompt_logprobs")), "{body}");
    }
}

#[test]
fn a_prompt_is_cut_to_its_last_tokens() {
    let server = server();
    for (path, body) in [
        (CHAT, chat("one two three", json!({"truncate_prompt_tokens": 2}))),
        (TEXT, text("one two three", json!({"truncate_prompt_tokens": 2}))),
    ] {
        full(&server, path, &body);
        assert_eq!(server.submitted().tokens, Some(2), "{path}");
    }
    full(&server, TEXT, &text("one", json!({"truncate_prompt_tokens": 2})));
    assert_eq!(server.submitted().tokens, Some(1));
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for (path, body) in [
        (CHAT, chat("hi", json!({"truncate_prompt_tokens": 2, "tools": tools}))),
        (TEXT, text("hi", json!({"truncate_prompt_tokens": 2, "echo": true}))),
        (TEXT, text("hi", json!({"truncate_prompt_tokens": 0}))),
    ] {
        let refused = post(server.address, path, &body);
        assert_eq!(
            (refused.status, &refused.error()["param"]),
            (400, &json!("truncate_prompt_tokens")),
            "{body}"
        );
    }
}
