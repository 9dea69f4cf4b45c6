//! Properties of the parser of generated text, and outputs that are malformed.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::deltas::{Setup, lines};
use crate::outputs::OUTPUTS;
use expect_test::{Expect, expect};
use omnibus_text::{
    CallEnding, Delta, OutputParser, REASONING_FORMATS, ReasoningFormat, TOOL_CALL_FORMATS, ToolCallFormat,
    ToolSchemas,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn schemas() -> ToolSchemas {
    ToolSchemas::new(&json!([
        {"name": "f", "parameters": {"properties": {
            "s": {"type": "string"}, "n": {"type": "number"}, "o": {"type": ["object", "null"]},
            "u": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "e": {"enum": ["1", "2"]},
            "r": {"$ref": "#/$defs/word"}, "l": {"type": "array"},
        }, "$defs": {"word": {"type": "string"}}}},
        {"name": "g", "input_schema": {"type": "object"}},
    ]))
}

fn check(format: &str, text: &str, expected: Expect) {
    let schemas = schemas();
    let tools = Some((ToolCallFormat::named(format).unwrap(), &schemas));
    let setup = Setup { prompt: "", reasoning: ReasoningFormat::named("think"), tools };
    expected.assert_eq(&lines(&setup.parse_every_split(text)));
}

#[test]
fn a_malformed_call_is_text() {
    for text in [
        "<tool_call>",
        "<tool_call>\n{\"name\": ",
        "<tool_call>not JSON</tool_call>",
        "a <tool_call>{\"name\": 1}</tool_call> b",
        "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"text\"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"city\": \"Bern\"}</tool_call>",
        "<tool_cal",
        "x < y",
    ] {
        check("hermes", text, expect_text(text));
    }
    for text in [
        "<tool_call>\n<function=>",
        "<tool_call>\n<function=f",
        "<function=f>text</function>",
        "<function=f>",
    ] {
        check("qwen3-coder", text, expect_text(text));
    }
    for text in ["{\"answer\": 42}", "{\"name\": \"Ada\", \"parameters\": {}}", "{", "[1, 2]"] {
        check("llama-3", text, expect_text(text));
        check("json", text, expect_text(text));
        check("xlam", text, expect_text(text));
    }
    for text in ["[1, 2]", "[f(1)]", "[h(s=1)]", "[f", "[f(s"] {
        check("llama-4", text, expect_text(text));
    }
}

/// The whole text as one delta.
fn expect_text(text: &str) -> Expect {
    let data = Box::leak(format!("text {text:?}\n").into_boxed_str());
    Expect { position: expect![[""]].position, data, indent: false }
}

#[test]
fn what_ends_inside_a_call_cuts_it() {
    check(
        "hermes",
        r#"<tool_call>{"name": "f", "arguments": {"s": "rm -rf /t"#,
        expect![[r#"call f {"s":"rm -rf /t cut
"#]],
    );
    check(
        "hermes",
        r#"<tool_call>{"name": "f", "arguments": {"n": 1 2}}</tool_call>"#,
        expect![[r#"
            call f {"n":1 cut
            text "2}}</tool_call>"
        "#]],
    );
    check(
        "qwen3-coder",
        "<function=f>\n<parameter=s>\nab\n</parameter>\n<param",
        expect![[r#"
            call f {"s":"ab" cut
            text "<param"
        "#]],
    );
    check(
        "qwen3-coder",
        "<function=f>\n<parameter=n>\n4",
        expect![[r#"
            call f {"n": cut
            text "4"
        "#]],
    );
}

#[test]
fn other_members_of_a_call_are_dropped() {
    check(
        "hermes",
        r#"<tool_call>{"name": "f", "why": {"a": [1]}, "arguments": {"n": 1}, "n": 2}</tool_call>"#,
        expect![[r#"
            call f {"n":1}
        "#]],
    );
}

#[test]
fn the_closing_tag_may_be_missing() {
    check("hermes", r#"<tool_call>{"name": "f", "arguments": {}}"#, expect![["call f {}\n"]]);
    check(
        "qwen3-coder",
        "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n</tool_call>",
        expect![[r#"
        call f {"s":"a"}
    "#]],
    );
    check(
        "kimi-k2",
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}",
        expect![[r#"
        call f (functions.f:0) {}
    "#]],
    );
}

#[test]
fn a_call_of_another_form_between_the_same_tags_is_one() {
    check(
        "qwen3-coder",
        r#"<tool_call>{"name": "f", "arguments": {}}</tool_call>"#,
        expect![["call f {}\n"]],
    );
    check("glm", r#"<tool_call>{"name": "f", "arguments": {}}</tool_call>"#, expect![["call f {}\n"]]);
}

#[test]
fn types_follow_the_schema() {
    let parameters = [
        ("s", "42"),
        ("n", "42"),
        ("o", "null"),
        ("u", "null"),
        ("u", "42"),
        ("e", "1"),
        ("r", "true"),
        ("x", "42"),
        ("x", "4 2"),
        ("n", "many"),
        ("l", "['a', True]"),
        ("o", " {\"a\" : 1} "),
    ];
    let parameters: String =
        parameters.iter().map(|(name, value)| format!("<parameter={name}>{value}</parameter>")).collect();
    check(
        "qwen3-coder",
        &format!("<function=f>{parameters}</function>"),
        expect![[r#"
        call f {"s":"42","n":42,"o":null,"u":null,"u":"42","e":"1","r":"true","x":42,"x":"4 2","n":"many","l":["a",true],"o":{"a":1}}
    "#]],
    );
}

#[test]
fn arguments_are_canonical_json() {
    check(
        "hermes",
        "<tool_call>{ \"arguments\" : { \"s\" : \"\\u00e9\\ud83d\\ude00\\/\\ud83d \u{1}\n\", \"n\" : [ 1.50 , -2e3 , ] } , \"name\" : \"f\" }</tool_call>",
        expect![[r#"
            call f {"s":"é😀/� \u0001\n","n":[1.50,-2e3]}
        "#]],
    );
    check("hermes", r#"<tool_call>{"name": "f", "arguments": null}</tool_call>"#, expect![["call f {}\n"]]);
    check("hermes", r#"<tool_call>{"name": "f"}</tool_call>"#, expect![["call f {}\n"]]);
    check(
        "hermes",
        r#"<tool_call>{"name": "f", "arguments": "{\"n\": 1}"}</tool_call>"#,
        expect![[r#"
        call f {"n":1}
    "#]],
    );
}

#[test]
fn text_and_arguments_stream_as_they_come() {
    let schemas = schemas();
    let stream = |format: &str, text: &str| {
        let format = ToolCallFormat::named(format).unwrap();
        let mut parser = OutputParser::new("", None, Some((format, &schemas)));
        let mut steps: Vec<String> =
            text.split('|').map(|piece| lines(&parser.push(piece)).replace('\n', ";")).collect();
        steps.push(lines(&parser.finish()));
        steps.join("|")
    };
    expect![[r#"text "Hel";|text "lo";|text " <b>";||call f {"s":"a|b|\\c","n|":||12};|||"#]].assert_eq(&stream(
        "hermes",
        "Hel|lo <|b> <tool_c|all>{\"name\": \"f\", \"arguments\":| {\"s\": \"a|b|\\\\c\", \"n|\": 1|2|}|}</tool_call>|",
    ));
    expect![[r#"|call f {"s":"|ab|c|\nd|"};|"#]].assert_eq(&stream(
        "qwen3-coder",
        "<function=f>|\n<parameter=s>|\nab|c\n|d\n</para|meter>\n</function>",
    ));
}

#[test]
fn a_message_may_begin_inside_reasoning() {
    let think = ReasoningFormat::named("think").unwrap();
    assert!(think.begins_inside("<|im_start|>assistant\n<think>\n"));
    assert!(!think.begins_inside("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    assert!(!think.begins_inside("<think> is a tag"));
    let setup = |prompt| Setup { prompt, reasoning: Some(think), tools: None };
    let inside = setup("<think>\n").parse_every_split("hm\n\nhm\n</think>\n\nYes.\n<think>more</think>No.");
    expect![[r#"
        reasoning "hm\n\nhm"
        text "Yes."
        reasoning "more"
        text "No."
    "#]]
    .assert_eq(&lines(&inside));
    expect![["text \"the <think> tag\"\n"]]
        .assert_eq(&lines(&setup("").parse_every_split("the <think> tag")));
    expect![["reasoning \"cut of\"\n"]].assert_eq(&lines(&setup("<think>").parse_every_split("cut of")));
    expect![["text \"x\"\n"]].assert_eq(&lines(&setup("").parse_every_split("\n</think>\n\nx")));
}

#[test]
fn an_opening_of_the_prompt_is_no_text() {
    let schemas = schemas();
    let tools = Some((ToolCallFormat::named("functionary-v3.2").unwrap(), &schemas));
    let setup = Setup { prompt: "assistant\n>>>", reasoning: None, tools };
    for (text, wanted) in [("all\nHi", "Hi"), ("Hello\nyou", "Hello\nyou"), ("", "")] {
        let found = setup.parse_every_split(text);
        assert_eq!(shown(&found), wanted);
    }
    let found = lines(&setup.parse_every_split("f\n{\"n\": 1}>>>all\nHi >>> x"));
    assert_eq!(found, "call f {\"n\":1}\ntext \"Hi >>> x\"\n");
}

#[test]
fn the_token_of_a_call_ends_reasoning() {
    check(
        "kimi-k2",
        "<think>hm<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        expect![[r#"
            reasoning "hm"
            call f (functions.f:0) {}
        "#]],
    );
}

#[test]
fn calls_may_be_a_member_of_an_object() {
    for format in ["json", "xlam"] {
        check(
            format,
            r#"{"tool_calls": [{"name": "f", "arguments": {"n": 1}}, {"name": "g", "arguments": {}}]}"#,
            expect![[r#"
            call f {"n":1}
            call g {}
        "#]],
        );
    }
}

#[test]
fn a_value_may_hold_its_own_closing_tag() {
    check(
        "qwen3-coder",
        "<function=f>\n<parameter=s>\na</parameter> b\n</parameter>\nc\n</parameter>\n</function>",
        expect![[r#"
        call f {"s":"a</parameter> b\n</parameter>\nc"}
    "#]],
    );
    // Where another tag follows, as in a text about this format, it cannot be distinguished from the end of the value.
    check(
        "qwen3-coder",
        "<function=f>\n<parameter=s>\na\n</parameter>\n</function>\nb\n</parameter>\n</function>",
        expect![[r#"
        call f {"s":"a"}
        text "b\n</parameter>\n</function>"
    "#]],
    );
    let tag = |tag: &str| format!("]<]minimax[>[<{tag}>");
    let tags = ["tool_call", "invoke name=\"f\"", "o", "a", "o", "/o", "/a", "/o", "/invoke", "/tool_call"];
    check(
        "minimax-m3",
        &tags.map(tag).concat(),
        expect![[r#"
        call f {"o":{"a":{"o":""}}}
    "#]],
    );
}

#[test]
fn held_text_is_bounded() {
    let schemas = schemas();
    let tools = Some((ToolCallFormat::named("hermes").unwrap(), &schemas));
    let text =
        format!("<tool_call>{{\"arguments\": {{\"s\": \"{}\"}}, \"name\": \"f\"}}", "x".repeat(70_000));
    let setup = Setup { prompt: "", reasoning: None, tools };
    let pieces = || text.as_bytes().chunks(1000).map(|piece| std::str::from_utf8(piece).unwrap());
    assert_eq!(setup.parse(pieces()), [Delta::Text(text.clone())]);
    assert_eq!(setup.parse([text.as_str()]), [Delta::Text(text.clone())]);
    let mut parser = OutputParser::new("", None, tools);
    let streamed: usize = pieces().map(|piece| parser.push(piece).len()).sum();
    assert!(streamed > 0, "text is shown before the end");
}

#[test]
fn markers_in_arguments_are_arguments() {
    check(
        "hermes",
        r#"<tool_call>{"name": "f", "arguments": {"s": "<think>a</think> </tool_call><tool_call>"}}</tool_call>"#,
        expect![[r#"
            call f {"s":"<think>a</think> </tool_call><tool_call>"}
        "#]],
    );
}

/// A change of a text at a place, by a length.
#[derive(Debug, Clone)]
enum Change {
    Delete(usize, usize),
    Repeat(usize, usize),
    Insert(usize, &'static str),
}

impl Change {
    fn apply(&self, text: &str) -> String {
        let chars: Vec<char> = text.chars().collect();
        let split = |at: &usize| chars.split_at(at % (chars.len() + 1));
        let string = |chars: &[char]| chars.iter().collect::<String>();
        match self {
            Self::Delete(at, length) => {
                let (before, behind) = split(at);
                string(before) + &string(behind.get(*length..).unwrap_or_default())
            }
            Self::Repeat(at, length) => {
                let (before, behind) = split(at);
                string(before) + &string(&behind[..behind.len().min(*length)]) + &string(behind)
            }
            Self::Insert(at, piece) => {
                let (before, behind) = split(at);
                string(before) + piece + &string(behind)
            }
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "\"",
        ":",
        ",",
        "[",
        "]",
        "(",
        ")",
        "=",
        "'",
        "\\",
        "\\u00",
        "\\ud83d",
        "\n",
        " ",
        "é",
        "<",
        ">",
        "1",
        "null",
        "<think>",
        "</think>",
        "<tool_call>",
        "<|end|>",
        "```",
        "{\"name\": \"f\"}",
        "f(s=1)",
        "</parameter>",
    ];
    prop_oneof![
        (0..1000_usize, 1..40_usize).prop_map(|(at, length)| Change::Delete(at, length)),
        (0..1000_usize, 1..80_usize).prop_map(|(at, length)| Change::Repeat(at, length)),
        (0..1000_usize, 0..PIECES.len()).prop_map(|(at, index)| Change::Insert(at, PIECES[index])),
    ]
}

/// Formats that drop markers which are no calls.
const DROPS_MARKERS: &[&str] = &["functionary-v3.2", "harmony", "muse"];

/// The arguments of complete calls.
fn complete_calls(deltas: &[Delta]) -> impl Iterator<Item = &str> {
    deltas.windows(2).filter_map(|pair| match pair {
        [Delta::ToolCallArguments(json), Delta::ToolCallEnd(CallEnding::Complete)] => Some(json.as_str()),
        _ => None,
    })
}

/// The text of the deltas.
fn shown(deltas: &[Delta]) -> String {
    deltas
        .iter()
        .filter_map(|delta| if let Delta::Text(text) = delta { Some(text.as_str()) } else { None })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics_and_splits_do_not_matter(
        output in 0..OUTPUTS.len(),
        format in prop_oneof![Just(None), (0..TOOL_CALL_FORMATS.len()).prop_map(Some)],
        reasoning in 0..=REASONING_FORMATS.len(),
        changes in prop::collection::vec(change(), 0..5),
        cuts in prop::collection::vec(0..400_usize, 0..6),
    ) {
        let (name, text) = OUTPUTS[output];
        let text = changes.iter().fold(text.to_owned(), |text, change| change.apply(&text));
        let own = TOOL_CALL_FORMATS.iter().position(|format| format.name == name).unwrap();
        let format = format.unwrap_or(own);
        let schemas = schemas();
        let tools = Some((TOOL_CALL_FORMATS[format], &schemas));
        let setup = Setup { prompt: "", reasoning: REASONING_FORMATS.get(reasoning), tools };
        let whole = setup.parse([text.as_str()]);
        prop_assert_eq!(setup.parse(text.split("")), whole.clone());
        let mut borders: Vec<usize> = cuts.into_iter().filter(|at| text.is_char_boundary(*at)).collect();
        borders.extend([0, text.len()]);
        borders.sort_unstable();
        prop_assert!(complete_calls(&whole).all(|json| serde_json::from_str::<Map<String, Value>>(json).is_ok()), "{:?}", whole);
        let without_reasoning = Setup { reasoning: None, ..setup }.parse([text.as_str()]);
        let has_call = without_reasoning.iter().any(|delta| !matches!(delta, Delta::Text(_)));
        if !has_call && !DROPS_MARKERS.contains(&TOOL_CALL_FORMATS[format].name) {
            prop_assert_eq!(shown(&without_reasoning), text.as_str());
        }
        let parts = borders.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        prop_assert_eq!(setup.parse(parts), whole);
    }

    #[test]
    fn text_without_markers_comes_out_unchanged(format in 0..TOOL_CALL_FORMATS.len(), text in "[a-zé0-9 .,:;\n{}\"]{0,80}") {
        let schemas = schemas();
        let setup = Setup { prompt: "", reasoning: None, tools: Some((TOOL_CALL_FORMATS[format], &schemas)) };
        let deltas = setup.parse(text.split(""));
        prop_assert_eq!(shown(&deltas), text);
    }

    #[test]
    fn arguments_are_the_json_that_was_written(value in json_value(3)) {
        let object = json!({"s": value});
        let schemas = schemas();
        for (format, start, end) in [("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": ", "}</tool_call>"), ("mistral", "[TOOL_CALLS]f[ARGS]", "")] {
            let text = format!("{start}{}{end}", serde_json::to_string_pretty(&object).unwrap());
            let tools = Some((ToolCallFormat::named(format).unwrap(), &schemas));
            let deltas = Setup { prompt: "", reasoning: None, tools }.parse(text.split(""));
            prop_assert_eq!(&deltas[1], &Delta::ToolCallArguments(object.to_string()));
        }
    }
}

/// A JSON value of at most this depth. Its numbers are integers, which have one form.
fn json_value(depth: u32) -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|value| json!(value)),
        any::<i64>().prop_map(|value| json!(value)),
        any::<String>().prop_map(|value| json!(value)),
    ];
    leaf.prop_recursive(depth, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|values| json!(values)),
            prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(|values| json!(values)),
        ]
    })
}
