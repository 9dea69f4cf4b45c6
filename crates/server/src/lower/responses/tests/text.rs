//! Fields that say how the text of an answer is: its length, its log-probabilities, and what is repeated.

use expect_test::expect;

use super::*;
use crate::wire::responses::Truncation;

fn read(body: Value) -> Result<ResponsesRequest, String> {
    ResponsesRequest::read(body)
        .map_err(|error| format!("{}: {}", error.param().unwrap_or_default(), error.message()))
}

fn check_refused(fields: Value, expected: Expect) {
    let mut body = json!({"input": "hi"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    expected.assert_eq(&read(body).unwrap_err());
}

#[test]
fn verbosity_stands_in_the_system_message() {
    let with =
        |verbosity: &str| json!({"input": "hi", "instructions": "be kind", "text": {"verbosity": verbosity}});
    check(
        with("low"),
        expect![[r#"
            system: "be kind\n\nAnswer as briefly as possible."
            user: "hi""#]],
    );
    check(
        with("medium"),
        expect![[r#"
            system: "be kind"
            user: "hi""#]],
    );
    check(
        json!({"input": "hi", "text": {"verbosity": "high"}}),
        expect![[r#"
            system: "Answer in detail."
            user: "hi""#]],
    );
    check(
        json!({"input": [], "text": {"verbosity": "high"}}),
        expect!["input: `input` must have at least one item"],
    );
}

#[test]
fn log_probabilities_are_requested_by_either_field() {
    let of = |fields: Value| {
        let mut body = json!({"input": "hi"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        read(body).unwrap().logprobs
    };
    assert_eq!(of(json!({})), None);
    assert_eq!(of(json!({"top_logprobs": 0})), None);
    assert_eq!(of(json!({"top_logprobs": 3})), Some(3));
    assert_eq!(of(json!({"include": ["message.output_text.logprobs"]})), Some(0));
    assert_eq!(of(json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2})), Some(2));
}

#[test]
fn values_that_mean_nothing_are_refused_by_name() {
    check_refused(
        json!({"text": {"verbosity": "loud"}}),
        expect!["text.verbosity: `text.verbosity` must be low, medium or high, not `loud`"],
    );
    check_refused(
        json!({"top_logprobs": -2}),
        expect!["top_logprobs: `top_logprobs` must be -1 for the whole vocabulary or a count, not -2"],
    );
    check_refused(
        json!({"include": [3]}),
        expect!["include[0]: `include[0]` must be a string, not an integer"],
    );
    check_refused(
        json!({"truncation": "middle"}),
        expect!["truncation: `truncation` must be auto or disabled, not `middle`"],
    );
    check_refused(
        json!({"context_management": [{"type": "compaction"}]}),
        expect![
            "context_management: `context_management` is not supported: use `truncation`, or compact with `POST /v1/responses/compact`"
        ],
    );
    check_refused(
        json!({"max_tool_calls": 0}),
        expect!["max_tool_calls: `max_tool_calls` must be between 1 and 2147483647, not 0"],
    );
}

#[test]
fn a_request_is_repeated_as_it_was_sent() {
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    let wire =
        read(json!({"input": "hi", "truncation": "auto", "tools": [{"type": "function", "name": "f"}],
        "tool_choice": {"type": "function", "name": "f"}, "text": {"format": format}, "user": "u"}))
        .unwrap();
    assert_eq!(wire.truncation, Truncation::Auto);
    assert_eq!(wire.echo.tool_choice, json!({"type": "function", "name": "f"}));
    assert_eq!(wire.echo.format["name"], "response");
    assert_eq!(wire.echo.user.as_deref(), Some("u"));
    assert_eq!(read(json!({"input": "hi"})).unwrap().echo.format, json!({"type": "text"}));
}
