//! Fields of a Responses request that change the answer, and those that the answer repeats.

use serde_json::{Value, json};

use super::client::post;
use super::scripted::CONTEXT;
use super::{Server, server};

const PATH: &str = "/v1/responses";

fn respond(server: &Server, fields: Value) -> Value {
    let mut body = json!({"input": "hi", "max_output_tokens": 2});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let reply = post(server.address, PATH, &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

#[test]
fn text_has_the_log_probabilities_that_were_requested() {
    let server = server();
    let include = json!(["message.output_text.logprobs"]);
    let full = respond(&server, json!({"include": include, "top_logprobs": 1}));
    let logprobs = &full["output"][0]["content"][0]["logprobs"];
    let first = json!({"token": "w0 ", "logprob": -0.5, "bytes": b"w0 ", "top_logprobs":
        [{"token": "c0", "logprob": -1.0, "bytes": b"c0"}]});
    assert_eq!((&logprobs[0], logprobs.as_array().unwrap().len()), (&first, 2));
    assert_eq!(full["top_logprobs"], 1);

    let body =
        json!({"input": "hi", "max_output_tokens": 2, "include": include, "top_logprobs": 1, "stream": true});
    let events = post(server.address, PATH, &body.to_string()).events();
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let of = |kind: &str| -> Vec<&Value> { events.iter().filter(|event| event["type"] == kind).collect() };
    let sent: Vec<&Value> = of("response.output_text.delta")
        .into_iter()
        .flat_map(|event| event["logprobs"].as_array().unwrap())
        .collect();
    assert_eq!(sent, logprobs.as_array().unwrap().iter().collect::<Vec<_>>());
    assert_eq!(&of("response.output_text.done")[0]["logprobs"], logprobs);
    assert_eq!(&of("response.content_part.done")[0]["part"]["logprobs"], logprobs);
    assert_eq!(of("response.completed").len() + of("response.incomplete").len(), 1);

    let without = respond(&server, json!({}));
    assert_eq!(without["output"][0]["content"][0]["logprobs"], json!([]));
}

#[test]
fn an_input_that_does_not_fit_loses_its_oldest_items_with_auto() {
    let server = server();
    let half = "a ".repeat(CONTEXT / 2);
    let body = |truncation: &str, last: &str| {
        let message = |content: &str| json!({"role": "user", "content": content});
        let input = json!([message(&half), message(&half), message("b c"), message(last)]);
        json!({"input": input, "instructions": "rule", "max_output_tokens": 2, "truncation": truncation})
            .to_string()
    };
    // One half fits beside the rest: three words of the last messages, the instructions, and the answer.
    let cut = post(server.address, PATH, &body("auto", "all d")).json();
    assert_eq!(cut["usage"]["input_tokens"], CONTEXT / 2 + 5, "{cut}");
    assert_eq!(cut["truncation"], "auto");
    let refused = post(server.address, PATH, &body("disabled", "all d"));
    assert_eq!((refused.status, &refused.error()["code"]), (400, &json!("context_length_exceeded")));
    let last = format!("all {}", "a ".repeat(CONTEXT));
    let hopeless = post(server.address, PATH, &body("auto", &last));
    assert_eq!((hopeless.status, &hopeless.error()["code"]), (400, &json!("context_length_exceeded")));
}

#[test]
fn a_response_has_every_field_of_the_sdk() {
    let server = server();
    let full = respond(
        &server,
        json!({"user": "u", "max_tool_calls": 3, "safety_identifier": "s", "prompt_cache_key": "p"}),
    );
    let expected = [
        ("user", json!("u")),
        ("max_tool_calls", json!(3)),
        ("safety_identifier", json!("s")),
        ("prompt_cache_key", json!("p")),
        ("tool_choice", json!("auto")),
        ("text", json!({"format": {"type": "text"}, "verbosity": "medium"})),
        ("service_tier", json!("default")),
        ("truncation", json!("disabled")),
        ("top_logprobs", json!(0)),
        ("completed_at", json!(null)),
    ];
    for (field, value) in expected {
        assert_eq!(full.get(field), Some(&value), "{field}");
    }
    assert_eq!(full["usage"]["input_tokens_details"]["cache_write_tokens"], 0);
    let stopped = respond(&server, json!({"input": "tools"}));
    assert!(stopped["completed_at"].as_u64() >= stopped["created_at"].as_u64(), "{stopped}");
}
