//! Ollama's API with the embedded model.

use serde_json::{Value, json};

use super::client::{Reply, get, post};
use super::process::Server;

fn send(server: &Server, path: &str, body: Value) -> Reply {
    let reply = post(server.address, path, &body.to_string());
    assert_eq!(reply.status, 200, "{path} {body}: {}", reply.body);
    reply
}

fn lines(reply: &Reply) -> Vec<Value> {
    reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn chats_and_completions_are_those_of_the_other_apis() {
    let server = Server::start(&["--log", "error"]);
    let question = "What is two plus two?";
    let openai = json!({"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 8,
        "return_token_ids": true});
    let expected = send(&server, "/v1/chat/completions", openai).json();
    let text = expected["choices"][0]["message"]["content"].as_str().unwrap();
    let options = json!({"temperature": 0, "num_predict": 8});
    let chat = json!({"model": "omnibus-mini", "messages": [{"role": "user", "content": question}], "options": options});
    let streamed = lines(&send(&server, "/api/chat", chat.clone()));
    let joined: String = streamed.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(joined, text);
    let last = streamed.last().unwrap();
    assert_eq!(last["prompt_eval_count"], expected["usage"]["prompt_tokens"]);
    assert!(last["total_duration"].as_u64() > last["eval_duration"].as_u64(), "{last}");
    let mut whole = chat;
    whole["stream"] = json!(false);
    assert_eq!(send(&server, "/api/chat", whole).json()["message"]["content"], text);
    let prompt =
        json!({"model": "omnibus-mini:latest", "prompt": question, "options": options, "stream": false});
    let first = send(&server, "/api/generate", prompt).json();
    assert_eq!(first["response"], text);
    let context = first["context"].as_array().unwrap();
    let tokens = |count: &Value| count.as_u64().unwrap() as usize;
    let answer = expected["choices"][0]["token_ids"].as_array().unwrap();
    assert!(!answer.is_empty() && answer.len() <= 8, "{expected}");
    let both = [expected["prompt_token_ids"].as_array().unwrap().as_slice(), answer].concat();
    assert_eq!(*context, both, "the prompt's tokens and the answer's");
    let more = json!({"model": "omnibus-mini", "prompt": "And then?", "context": context, "options": options, "stream": false});
    let second = send(&server, "/api/generate", more).json();
    assert!(tokens(&second["prompt_eval_count"]) > context.len(), "{second}");
    let raw = json!({"model": "omnibus-mini", "prompt": "Once upon a", "raw": true, "options": options, "stream": false});
    let completion = json!({"prompt": "Once upon a", "temperature": 0, "max_tokens": 8});
    let completion = send(&server, "/v1/completions", completion).json();
    assert_eq!(send(&server, "/api/generate", raw).json()["response"], completion["choices"][0]["text"]);
}

#[test]
fn an_answer_matches_its_format() {
    let server = Server::start(&["--log", "error"]);
    let schema = json!({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false});
    for (format, temperature) in [(schema.clone(), 0.0), (schema, 1.5), (json!("json"), 0.0)] {
        let body = json!({"model": "omnibus-mini", "messages": [{"role": "user", "content": "JSON, please."}], "stream": false,
            "format": format, "options": {"num_predict": 60, "temperature": temperature, "seed": 1}});
        let answer = send(&server, "/api/chat", body).json();
        let content = answer["message"]["content"].as_str().unwrap();
        if format.is_object() {
            assert_eq!(serde_json::from_str::<Value>(content).unwrap(), json!({"a": 1}), "{answer}");
        } else {
            assert!(content.trim_start().starts_with('{'), "{answer}");
        }
    }
}

#[test]
fn the_embedded_model_is_described() {
    let server = Server::start(&["--log", "error"]);
    let tags = get(server.address, "/api/tags").json();
    let model = &tags["models"][0];
    assert_eq!(model["model"], "omnibus-mini:latest");
    assert!(model["size"].as_u64().unwrap() > 100_000, "{model}");
    let shown = send(&server, "/api/show", json!({"model": model["model"]})).json();
    let architecture = shown["model_info"]["general.architecture"].as_str().unwrap();
    assert_eq!(shown["model_info"][format!("{architecture}.context_length")], 4096);
    assert!(shown["model_info"][format!("{architecture}.embedding_length")].as_u64().unwrap() > 0, "{shown}");
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("tools")), "{shown}");
    assert_eq!(
        get(server.address, "/api/ps").json()["models"][0]["size_vram"].as_u64().map(|size| size > 0),
        Some(true)
    );
}
