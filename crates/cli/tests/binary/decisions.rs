//! Decisions of the embedded model, and log-probabilities of given continuations, as clients and evaluation harnesses send them.

use serde_json::{Map, Value, json};

use super::client::post;
use super::process::Server;

fn send(server: &Server, path: &str, body: &Value) -> Value {
    let reply = post(server.address, path, &body.to_string());
    assert_eq!(reply.status, 200, "{body}: {}", reply.body);
    reply.json()
}

fn decide(server: &Server, questions: &Value, readout: &str) -> Value {
    let state = "The bus was late again, and it was not known when it would come. I want my money back.";
    let body = json!({"model": "jev-latest", "state": state, "questions": questions, "x_readout": readout});
    send(server, "/v1/systemone", &body)["answers"].clone()
}

fn sum(probabilities: &Value) -> f64 {
    probabilities.as_object().unwrap().values().map(|value| value.as_f64().unwrap()).sum()
}

fn questions() -> Value {
    json!({
        "refund": {"type": "noul", "instructions": "Is money wanted back?", "criteria": {"true": "Money is named"}},
        "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "Payments", "drivers": null}},
        "anger": {"type": "score", "instructions": "How angry?", "criteria": ["Calm", "Annoyed", "Furious"]},
    })
}

#[test]
fn the_embedded_model_decides() {
    let server = Server::start(&[]);
    for readout in ["labels", "options"] {
        let all = decide(&server, &questions(), readout);
        assert!((sum(&all["team"]["probabilities"]) - 1.0).abs() < 1e-9, "{all}");
        assert!((sum(&all["anger"]["probabilities"]) - 1.0).abs() < 1e-9, "{all}");
        let noul = all["refund"]["noul"].as_f64().unwrap();
        assert!(noul > 0.0 && noul < 1.0, "{all}");
        // A question alone, under another key, has the same answer.
        let renamed = json!({"질문": questions()["team"], "more": questions()["refund"]});
        let alone = decide(&server, &renamed, readout);
        let confidence = |answer: &Value| answer["confidence"].as_f64().unwrap();
        assert!((confidence(&alone["질문"]) - confidence(&all["team"])).abs() < 1e-3, "{alone} {all}");
        assert_eq!(alone["질문"]["choice"], all["team"]["choice"]);
    }
    let options: Map<String, Value> =
        (0..255).map(|number| (format!("queue {number}"), Value::Null)).collect();
    let many = json!({"queue": {"type": "choice", "instructions": "Which queue?", "criteria": options}});
    let many = decide(&server, &many, "labels");
    assert!((sum(&many["queue"]["probabilities"]) - 1.0).abs() < 1e-9);
    assert_eq!(many["queue"]["probabilities"].as_object().unwrap().len(), 255);
}

#[test]
fn two_answers_with_equal_texts_are_refused() {
    let server = Server::start(&[]);
    let question = json!({"type": "score", "criteria": ["Calm", "Calm"]});
    let body = json!({"state": "s", "questions": {"q": question}, "x_readout": "options"});
    let reply = post(server.address, "/v1/systemone", &body.to_string());
    let answer = reply.json();
    assert_eq!(
        (reply.status, &answer["detail"][0]["loc"]),
        (422, &json!(["body", "questions", "q"])),
        "{answer}"
    );
}

/// What lm-eval's `local-completions` sends for a context and two continuations, and the sums that it makes of the answer.
#[test]
fn harnesses_get_the_likelihoods_of_continuations() {
    let server = Server::start(&[]);
    let tokens = |text: &str| -> Vec<u64> {
        let body = json!({"prompt": text, "add_special_tokens": false});
        serde_json::from_value(send(&server, "/tokenize", &body)["tokens"].clone()).unwrap()
    };
    let context = tokens("The bus stops at the");
    let prompts: Vec<Vec<u64>> =
        [" market", " harbour"].iter().map(|word| [context.clone(), tokens(word)].concat()).collect();
    let body = json!({
        "model": "omnibus-mini", "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true,
    });
    let answer = send(&server, "/v1/completions", &body);
    for (choice, prompt) in answer["choices"].as_array().unwrap().iter().zip(&prompts) {
        let lists = &choice["logprobs"];
        let logprobs = lists["token_logprobs"].as_array().unwrap();
        assert_eq!(logprobs.len(), prompt.len() + 1, "the prompt and one token");
        assert!(logprobs[0].is_null());
        let sum: f64 = logprobs[context.len()..prompt.len()].iter().map(|one| one.as_f64().unwrap()).sum();
        // Token by token, by the probabilities of the next one.
        let mut expected = 0.0;
        for at in context.len()..prompt.len() {
            let body = json!({
                "prompt": prompt[..at], "max_tokens": 1, "temperature": 0, "logprob_token_ids": [prompt[at]],
                "return_tokens_as_token_ids": true,
            });
            let next = send(&server, "/v1/completions", &body);
            let top = &next["choices"][0]["logprobs"]["top_logprobs"][0];
            expected += top[format!("token_id:{}", prompt[at])].as_f64().unwrap_or_else(|| panic!("{next}"));
        }
        assert!((sum - expected).abs() < 1e-3, "{sum} is not {expected}");
    }
    for (ids, message) in
        [(json!([5000]), "not a token"), (json!(vec![1; 129]), "at most 128"), (json!(["a"]), "token id")]
    {
        let body = json!({"prompt": "a", "max_tokens": 1, "logprob_token_ids": ids});
        let reply = post(server.address, "/v1/completions", &body.to_string());
        let error = reply.json()["error"].clone();
        assert_eq!(reply.status, 400, "{error}");
        assert!(error["param"].as_str().unwrap().starts_with("logprob_token_ids"), "{error}");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    }
}
