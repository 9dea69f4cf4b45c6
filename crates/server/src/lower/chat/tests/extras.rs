//! Fields that clients of other servers send.

use expect_test::expect;
use omnibus_engine::Grammar;

use super::*;

#[test]
fn gateways_send_what_happens_anyway_and_nothing_else() {
    let accepted = lowered(
        r#""no_stop_trim":false,"skip_special_tokens":true,"spaces_between_special_tokens":true,"separate_reasoning":true,
        "stream_reasoning":true,"return_hidden_states":false,"include_reasoning":true,"store":true,"moderation":{"model":"m"},
        "prompt_cache_options":{"mode":"implicit"}"#,
    );
    assert_eq!(accepted, lowered(r#""n":1"#));
    assert!(lowered(r#""no_stop_trim":true"#).stop.include);
    check_refused(
        r#""skip_special_tokens":false"#,
        expect![
            "skip_special_tokens: `skip_special_tokens` must be true: special tokens are no part of the text"
        ],
    );
    check_refused(
        r#""separate_reasoning":false"#,
        expect!["separate_reasoning: `separate_reasoning` must be true: reasoning has a field of its own"],
    );
    check_refused(
        r#""stream_reasoning":false"#,
        expect!["stream_reasoning: `stream_reasoning` must be true: reasoning is streamed as it comes"],
    );
    check_refused(
        r#""return_hidden_states":true"#,
        expect!["return_hidden_states: `return_hidden_states` must be false: hidden states are not returned"],
    );
    check_refused(
        r#""bad_words":["x",1]"#,
        expect!["bad_words[1]: `bad_words[1]` must be a string, not an integer"],
    );
    check_refused(
        r#""verbosity":"loud""#,
        expect!["verbosity: `verbosity` must be low, medium or high, not `loud`"],
    );
}

#[test]
fn thinking_is_switched_and_limited_in_the_shape_of_deepseek() {
    let of = |fields: &str| {
        let request = lowered(fields);
        let Input::Chat(chat) = request.input else { panic!() };
        (Value::Object(chat.template_kwargs).to_string(), request.reasoning_budget)
    };
    let switched = |on: bool| format!(r#"{{"enable_thinking":{on},"thinking":{on}}}"#);
    assert_eq!(of(r#""thinking":{"type":"enabled","budget_tokens":9}"#), (switched(true), Some(9)));
    assert_eq!(of(r#""thinking":{"type":"disabled","clear_thinking":true}"#), (switched(false), None));
    assert_eq!(of(r#""thinking":{"type":"auto"}"#), ("{}".to_owned(), None));
    assert_eq!(
        of(
            r#""thinking":{"type":"enabled","budget_tokens":9},"enable_thinking":false,"thinking_token_budget":3"#
        ),
        (switched(false), Some(3))
    );
    check_refused(
        r#""thinking":{"type":"deep"}"#,
        expect!["thinking.type: `thinking.type` must be enabled, adaptive, auto or disabled, not `deep`"],
    );
    check_refused(r#""thinking":{}"#, expect!["thinking.type: `thinking.type` is missing"]);
}

#[test]
fn a_schema_stands_in_the_format_itself() {
    let grammar = |format: &str| lowered(&format!(r#""response_format":{format}"#)).structured.unwrap();
    for kind in ["json_object", "json_schema"] {
        let own =
            grammar(&format!(r#"{{"type":"{kind}","schema":{{"type":"array"}},"name":"n","strict":true}}"#));
        assert_eq!(own.field, "response_format.schema");
        assert!(matches!(own.grammar, Grammar::JsonSchema { schema, .. } if schema == r#"{"type":"array"}"#));
    }
    assert!(matches!(grammar(r#"{"type":"json_object"}"#).grammar, Grammar::JsonObject));
    check_refused(
        r#""response_format":{"type":"json_schema","schema":3}"#,
        expect!["response_format.schema: `response_format.schema` must be a JSON schema, not an integer"],
    );
}

#[test]
fn extras_of_messages_are_read_or_left() {
    check_messages(
        r#"[{"role":"user","content":"hi","cache_control":{},"id":"m1"},
            {"role":"assistant","content":null,"refusal":"no","reasoning_details":[{"type":"reasoning.text","text":"h"},{"type":"reasoning.summary","summary":"m"}],"parsed":{}},
            {"role":"assistant","content":"so","thinking_blocks":[{"type":"thinking","thinking":"t","signature":"s"}]},
            {"role":"user","content":[{"type":"refusal","refusal":"r"},{"type":"text","text":"x","prompt_cache_breakpoint":{}}]}]"#,
        expect![[
            r#"[{"role":"user","content":"hi"},{"role":"assistant","content":"no","reasoning_content":"hm"},{"role":"assistant","content":"so","reasoning_content":"t"},{"role":"user","content":"rx"}]"#
        ]],
    );
}

#[test]
fn the_last_message_says_that_it_is_continued() {
    let continues = |messages: &str| {
        read(&format!(r#"{{"messages":{messages}}}"#)).map(|mut batch| match batch.prompts.remove(0).input {
            Input::Chat(chat) => chat.end == PromptEnd::OpenMessage,
            other => panic!("{other:?}"),
        })
    };
    let user = r#"{"role":"user","content":"hi"}"#;
    for name in ["prefix", "partial"] {
        assert_eq!(
            continues(&format!(r#"[{user},{{"role":"assistant","content":"a","{name}":true}}]"#)),
            Ok(true)
        );
        assert_eq!(
            continues(&format!(r#"[{user},{{"role":"assistant","content":"a","{name}":false}}]"#)),
            Ok(false)
        );
    }
    expect!["messages[0].prefix: `messages[0].prefix` can be true in the last message only"].assert_eq(
        &continues(&format!(r#"[{{"role":"assistant","content":"a","prefix":true}},{user}]"#)).unwrap_err(),
    );
    expect!["messages[0].prefix: `messages[0].prefix` does not belong to the role `user`"]
        .assert_eq(&continues(r#"[{"role":"user","content":"a","prefix":true}]"#).unwrap_err());
}

#[test]
fn files_are_texts_media_or_notes() {
    let file = |fields: &str| format!(r#"[{{"role":"user","content":[{{"type":"file","file":{fields}}}]}}]"#);
    // "a,b" in base64.
    check_messages(
        &file(r#"{"filename":"t.csv","file_data":"data:application/vnd.ms-excel;base64,YSxi"}"#),
        expect![[r#"[{"role":"user","content":"t.csv:\na,b"}]"#]],
    );
    check_messages(
        &file(r#"{"file_data":"data:text/plain;base64,YSxi"}"#),
        expect![[r#"[{"role":"user","content":"a,b"}]"#]],
    );
    check_messages(
        &file(r#"{"filename":"t.pdf","file_data":"YSxi"}"#),
        expect![[
            "messages[0].content[0].file.file_data: `messages[0].content[0].file.file_data` must be a PDF"
        ]],
    );
    check_messages(
        &file(r#"{"file_id":"file-1"}"#),
        expect![[
            r#"[{"role":"user","content":"[file: only texts, PDFs, images, videos and sounds are read]"}]"#
        ]],
    );
    check_messages(
        &file(r#"{"filename":"t.txt","file_data":"%"}"#),
        expect![
            "messages[0].content[0].file.file_data: `messages[0].content[0].file.file_data` must be base64"
        ],
    );
    check_messages(
        &file(r#"{"filename":"t.txt","file_data":"/w=="}"#),
        expect![
            "messages[0].content[0].file.file_data: `messages[0].content[0].file.file_data` must be a text in UTF-8"
        ],
    );
    let image = format!(r#"{{"messages":{}}}"#, file(r#"{"filename":"t.png","file_data":"AA"}"#));
    let Input::Chat(chat) = read(&image).unwrap().prompts.remove(0).input else { panic!() };
    assert_eq!(chat.media[0].field, "messages[0].content[0].file.file_data");
}
