//! Lowering of completions requests, and their refusals.

use expect_test::{Expect, expect};

use super::*;
use crate::wire::json;

fn read(fields: &str) -> Result<GenerationBatch, String> {
    let caller = Caller { response_id: "cmpl-1".into(), tenant: String::new() };
    let wire = json::parse(format!("{{{fields}}}").as_bytes()).and_then(CompletionRequest::read);
    wire.map(|wire| lower(wire, &caller))
        .map_err(|error| format!("{}: {}", error.param().unwrap_or_default(), error.message()))
}

fn check_prompts(fields: &str, expected: Expect) {
    let lowered = match read(fields) {
        Ok(batch) => {
            batch.prompts.iter().map(|request| format!("{:?}", request.input)).collect::<Vec<_>>().join(" ")
        }
        Err(error) => error,
    };
    expected.assert_eq(&lowered);
}

#[test]
fn prompts_are_text_or_tokens_or_several_of_either() {
    check_prompts(r#""prompt":"a""#, expect![[r#"Text("a")"#]]);
    check_prompts(r#""prompt":[1,2]"#, expect!["Tokens([1, 2])"]);
    check_prompts(r#""prompt":["a","b"]"#, expect![[r#"Text("a") Text("b")"#]]);
    check_prompts(r#""prompt":[[1,2],[3],"c"]"#, expect![[r#"Tokens([1, 2]) Tokens([3]) Text("c")"#]]);
}

#[test]
fn invalid_prompts_are_refused() {
    check_prompts(r#""n":1"#, expect!["prompt: `prompt` is missing"]);
    check_prompts(r#""prompt":null"#, expect!["prompt: `prompt` is missing"]);
    check_prompts(r#""prompt":[]"#, expect!["prompt: `prompt` must not be empty"]);
    check_prompts(r#""prompt":[[]]"#, expect!["prompt[0]: `prompt[0]` must not be empty"]);
    check_prompts(r#""prompt":7"#, expect!["prompt: `prompt` must be a string or a list, not an integer"]);
    check_prompts(r#""prompt":[1,2.5]"#, expect!["prompt[1]: `prompt[1]` must be a token id, not 2.5"]);
    check_prompts(r#""prompt":[1,-2]"#, expect!["prompt[1]: `prompt[1]` must be a token id, not -2"]);
    check_prompts(
        r#""prompt":[1,4294967296]"#,
        expect!["prompt[1]: `prompt[1]` must be a token id, not 4294967296"],
    );
    check_prompts(
        r#""prompt":[1,"a"]"#,
        expect!["prompt[0]: `prompt[0]` must be a string or a list of token ids, not an integer"],
    );
    check_prompts(
        r#""prompt":[[1,"a"]]"#,
        expect!["prompt[0][1]: `prompt[0][1]` must be a token id, not a string"],
    );
    check_prompts(
        r#""prompt":{"a":1}"#,
        expect!["prompt: `prompt` must be a string or a list, not an object"],
    );
}

#[test]
fn unsupported_fields_are_refused_by_name() {
    check_prompts(r#""prompt":[1],"suffix":"b""#, expect!["suffix: `suffix` needs a `prompt` of text"]);
    check_prompts(r#""prompt":"a","n":3,"best_of":2"#, expect!["best_of: `best_of` must be at least `n`"]);
    check_prompts(
        r#""prompt":"a","best_of":3,"stream":true"#,
        expect!["best_of: `best_of` above `n` cannot be streamed"],
    );
    check_prompts(
        r#""prompt":"a","logprobs":-2"#,
        expect!["logprobs: `logprobs` must be -1 for the whole vocabulary or a count, not -2"],
    );
    check_prompts(
        r#""prompt":"a","messages":[]"#,
        expect!["messages: `messages` is not supported: use `prompt`, or `/v1/chat/completions`"],
    );
    check_prompts(
        &format!(r#""n":128,"prompt":[{}"a"]"#, "\"a\",".repeat(9)),
        expect!["n: `n` times the number of prompts must be at most 1024"],
    );
}

#[test]
fn logprobs_of_the_prompt_come_with_echo() {
    let of = |fields: &str| {
        let request = read(fields).unwrap().prompts.remove(0);
        (request.max_new_tokens, request.logprobs, request.prompt_logprobs)
    };
    assert_eq!(of(r#""prompt":"a""#), (Some(MAX_TOKENS_DEFAULT), None, None));
    assert_eq!(of(r#""prompt":"a","logprobs":2"#), (Some(16), Some(2), None));
    assert_eq!(of(r#""prompt":"a","logprobs":2,"echo":true,"max_tokens":0"#), (Some(0), Some(2), Some(2)));
}
