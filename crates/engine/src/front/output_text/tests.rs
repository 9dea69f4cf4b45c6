//! Typed deltas, stop strings and calls, with the embedded model's tokenizer.

use expect_test::{Expect, expect};
use omnibus_text::{AddSpecial, ReasoningFormat, ToolCallFormat, ToolSchemas};
use serde_json::json;

use super::*;
use crate::request::{Input, Stop};

fn tokenizer() -> Arc<Tokenizer> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
    Arc::new(Tokenizer::from_dir(&path, None).unwrap())
}

fn request(stop: &[&str], calls: CallLimit) -> Request {
    Request {
        stop: Stop { strings: stop.iter().map(|stop| (*stop).to_owned()).collect(), ..Stop::default() },
        output: OutputMode::Message { calls: Some(calls) },
        ..Request::new("r", Input::Text(String::new()))
    }
}

/// The deltas of a text, token by token, neighbours of one type joined, and what ended it.
fn check(text: &str, request: &Request, expected: Expect) {
    let tokenizer = tokenizer();
    let schemas = ToolSchemas::new(&json!([{"name": "f"}]));
    let tools = ToolCallFormat::named("hermes").zip(Some(&schemas));
    let parser = OutputParser::new("", ReasoningFormat::named("think"), tools);
    let mut output = OutputText::new(Arc::clone(&tokenizer), Some(parser), request);
    let (mut lines, mut ended) = (Vec::new(), None);
    for token in tokenizer.encode(text, AddSpecial::No).unwrap() {
        let new = output.push(token);
        lines.extend(new.deltas);
        ended = new.ended;
        if ended.is_some() {
            break;
        }
    }
    if ended.is_none() {
        let new = output.finish();
        lines.extend(new.deltas);
        ended = new.ended;
    }
    let mut joined: Vec<String> = Vec::new();
    for delta in lines {
        let kind = match &delta {
            Delta::Text(_) => "text ".to_owned(),
            Delta::Reasoning(_) => "reasoning ".to_owned(),
            Delta::ToolCallStart { id, name } => format!("call {name} {} ", id.len()),
            Delta::ToolCallArguments(_) => "arguments ".to_owned(),
            Delta::ToolCallEnd(ending) => format!("{ending:?}"),
        };
        match joined.last_mut() {
            Some(last) if last.starts_with(&kind) => last.push_str(delta.text()),
            _ => joined.push(kind + delta.text()),
        }
    }
    joined.push(format!("{ended:?}"));
    expected.assert_eq(&joined.join("\n"));
}

const MESSAGE: &str = "<think>END? hm</think>Now.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"END\"}}</tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";

#[test]
fn a_message_has_reasoning_text_and_calls_with_ids() {
    check(
        MESSAGE,
        &request(&[], CallLimit::Any),
        expect![[r#"
            reasoning END? hm
            text Now.
            call f 29 
            arguments {"a":"END"}
            Complete
            call f 29 
            arguments {}
            Complete
            None"#]],
    );
}

#[test]
fn stop_strings_end_the_answer_and_not_its_reasoning_or_calls() {
    check(
        MESSAGE,
        &request(&["END"], CallLimit::One),
        expect![[r#"
            reasoning END? hm
            text Now.
            call f 29 
            arguments {"a":"END"}
            Complete
            Some(Call)"#]],
    );
    check(
        "<think>END</think>a EN. ENDING",
        &request(&["END"], CallLimit::Any),
        expect![[r#"
            reasoning END
            text a EN. 
            Some(StopString("END"))"#]],
    );
}

#[test]
fn a_call_that_is_cut_stays_unfinished() {
    check(
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b",
        &request(&[], CallLimit::Any),
        expect![[r#"
            call f 29 
            arguments {"a":"b
            Cut
            None"#]],
    );
}
