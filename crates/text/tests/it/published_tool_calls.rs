//! Calls that chat templates write, parsed back under every split: the samples, and those of published models, which are
//! others' data and lie beside the repository.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do, and say what ran"
)]

use crate::deltas::Setup;
use crate::published::{Answer, Template, templates};
use omnibus_text::{CallEnding, Delta, ReasoningFormat, ToolCallFormat, ToolSchemas};
use serde_json::{Value, json};

/// Templates that write no calls, with the reason.
const NO_CALLS: &[(&str, &str)] = &[
    ("HuggingFaceTB-SmolLM3-3B", "it leaves out calls"),
    ("Kimi-K2-Instruct", "it appends to a list, which the sandbox refuses as jinja2's does"),
    ("Kimi-K2-Thinking", "it appends to a list, which the sandbox refuses as jinja2's does"),
    ("LFM2-8B-A1B", "it leaves out calls"),
    ("LFM2.5-Instruct", "it leaves out calls"),
    ("google-gemma-2-2b-it", "it knows no tools"),
    ("ibm-granite-granite-3.3-2B-Instruct", "it leaves out calls"),
    ("llama-cpp-rwkv-world", "it knows no tools"),
    ("microsoft-Phi-3.5-mini-instruct", "it knows no tools"),
    ("plain", "it knows no tools"),
];

/// Templates that write one call of a message, or refuse more.
const ONE_CALL: &[&str] = &[
    "GigaChat3-10B-A1.8B",
    "GigaChat3.1-10B-A1.8B",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "openai-gpt-oss-120b",
];

/// What a template writes that no parser can read back, with the reason.
const AMBIGUOUS: &[(&str, &str, &str)] = &[
    ("LFM2.5-8B-A1B", "backslashes", "it writes strings between quotes without escaping backslashes"),
    ("MiniMax-M3", "nested and empty", "it writes empty lists, empty objects and empty strings alike"),
];

fn tools() -> Value {
    let function = |name: &str, properties: Value| {
        json!({"type": "function", "function": {"name": name, "description": "A tool.", "parameters": {
            "type": "object", "properties": properties, "required": [],
        }}})
    };
    let typed = |kind: &str| json!({"type": kind, "description": "A value."});
    json!([
        function("get_weather", json!({"city": typed("string"), "unit": typed("string")})),
        function(
            "store",
            json!({
                "text": typed("string"), "note": typed("string"), "count": typed("integer"), "ratio": typed("number"),
                "flag": typed("boolean"), "list": {"type": "array", "description": "A value.", "items": typed("string")},
                "map": {"type": "object", "description": "A value.", "additionalProperties": typed("string"), "properties": {
                    "a": {"type": "object", "description": "A value.", "additionalProperties": typed("object")},
                    "b": {"type": "array", "description": "A value.", "items": typed("string")},
                }},
            })
        ),
    ])
}

/// Calls by the name of what is hostile in them.
fn cases() -> Vec<(&'static str, Vec<(&'static str, Value)>)> {
    let store = |arguments: Value| vec![("store", arguments)];
    vec![
        ("plain", vec![("get_weather", json!({"city": "Bern", "unit": "C"}))]),
        ("unicode", store(json!({"text": "Zürich 👩‍👩‍👧 𝒳 ｜ \u{200b}é", "note": "日本語"}))),
        ("quotes", store(json!({"text": "say \"hi\" and 'bye' `x`", "note": "it's"}))),
        ("backslashes", store(json!({"text": "C:\\new\\table \\u0041 \\\"", "note": "\\"}))),
        ("lines", store(json!({"text": "a\nb\n\nc\td\r\n e", "note": "x"}))),
        ("outer lines", store(json!({"text": "\n a\n", "note": "  b "}))),
        (
            "nested",
            store(
                json!({"map": {"a": {"x": {"y": [1, {"z": "ä\"\n"}]}}, "b": [[1], "x"]}, "list": ["a", "b \"c\""]}),
            ),
        ),
        ("nested and empty", store(json!({"map": {"a": {"x": {}}, "b": [[], {}, null, ""]}}))),
        ("scalars", store(json!({"count": -7, "ratio": 2.5, "flag": true, "list": [], "map": {}}))),
        ("strings like values", store(json!({"text": "42", "note": "true"}))),
        ("strings like JSON", store(json!({"text": "{\"a\": [1, null]}", "note": "null"}))),
        ("empty string", store(json!({"text": "", "note": ""}))),
        ("no arguments", store(json!({}))),
        ("markup", store(json!({"text": "<a href=\"x\">&amp;</a> ]]> <b/> <!-- -->", "note": "a<b && c>d"}))),
        (
            "like a call",
            store(json!({
                "text": "<tool_call>{\"name\": \"x\", \"arguments\": {}}</tool_call> [TOOL_CALLS]x[ARGS]{} <function=x> <|channel|>",
                "note": "get_weather(city=\"x\")",
            })),
        ),
        (
            "like an end",
            store(json!({
                "text": "a </parameter> b </arg_value> c </function> </tool_call> d </invoke> ]",
                "note": "</think>",
            })),
        ),
        (
            "two calls",
            vec![
                ("get_weather", json!({"city": "Bern"})),
                ("store", json!({"count": 1, "flag": false, "text": "x"})),
            ],
        ),
    ]
}

/// The calls of the deltas with their arguments, and the rest.
fn calls(deltas: &[Delta]) -> (Vec<(String, String)>, String) {
    let (mut calls, mut rest) = (Vec::new(), String::new());
    for delta in deltas {
        match delta {
            Delta::ToolCallStart { name, .. } => calls.push((name.clone(), String::new())),
            Delta::ToolCallArguments(json) => calls.last_mut().unwrap().1.push_str(json),
            Delta::ToolCallEnd(CallEnding::Complete) => {}
            Delta::ToolCallEnd(CallEnding::Cut) => rest.push_str("<cut>"),
            Delta::Text(text) | Delta::Reasoning(text) => rest.push_str(text),
        }
    }
    (calls, rest)
}

/// Parses what the template writes for these calls. Says how it differs.
fn check(template: &Template, wanted: &[(&str, Value)], text: &str) -> Result<(), String> {
    let format = ToolCallFormat::of_template(template.source()).ok_or("no format")?;
    let tools = tools();
    let schemas = ToolSchemas::new(&tools);
    let answer = Answer { text, reasoning: None, calls: wanted };
    let (prompt, output) = template.render_answer(&answer, Some(&tools))?;
    let reasoning = ReasoningFormat::of_template(template.source());
    let setup = Setup { prompt: &prompt, reasoning, tools: Some((format, &schemas)) };
    let (found, rest) = calls(&setup.parse_every_split(&output));
    let wanted: Vec<_> =
        wanted.iter().map(|(name, arguments)| (name.to_string(), arguments.to_string())).collect();
    let is_same = found.len() == wanted.len()
        && found.iter().zip(&wanted).all(|(found, wanted)| {
            found.0 == wanted.0
                && serde_json::from_str::<Value>(&found.1).ok() == serde_json::from_str(&wanted.1).ok()
        });
    let text = if output.contains(text) { text } else { "" };
    if is_same && rest.trim() == text {
        return Ok(());
    }
    Err(format!("{}: {output:?}\n  calls {found:?}\n  rest {rest:?}", format.name))
}

#[test]
fn calls_of_published_templates_are_parsed_back() {
    templates().for_each(|(_, templates)| check_all(&templates));
}

fn check_all(templates: &[Template]) {
    let (mut parsed, mut wrong) = (0, Vec::new());
    for template in templates {
        if NO_CALLS.iter().any(|(name, _)| *name == template.name) {
            continue;
        }
        for (case, wanted) in cases() {
            let is_ambiguous =
                AMBIGUOUS.iter().any(|(name, ambiguous, _)| *name == template.name && *ambiguous == case);
            if wanted.len() > 1 && ONE_CALL.contains(&template.name.as_str()) {
                continue;
            }
            for text in ["", "Let me look."] {
                match check(template, &wanted, text) {
                    Ok(()) => parsed += 1,
                    Err(_) if is_ambiguous => {}
                    Err(difference) => wrong.push(format!("{}/{case}: {difference}", template.name)),
                }
            }
        }
    }
    println!("{} templates: {parsed} messages parsed back", templates.len());
    assert!(parsed > 0);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
