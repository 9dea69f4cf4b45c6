//! Calls that a grammar makes a model write, read by the parser of their format.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::common::{Walk, tokenizer};
use omnibus_grammar::{
    CallCount, CallStart, Grammar, GrammarLimits, SchemaUse, Tool, calls_or_answer, calls_or_text, tool_calls,
};
use omnibus_text::tool_calls::{ArgumentStyle, IDENTIFIER, JSON_TYPE, NAME};
use omnibus_text::{Delta, OutputParser, ReasoningFormat, TOOL_CALL_FORMATS, ToolCallFormat, ToolSchemas};
use serde_json::{Value, json};

fn tools() -> Vec<(&'static str, Value)> {
    vec![
        (
            "get_weather",
            json!({
                "type": "object",
                "properties": {
                    "city": { "type": "string" },
                    "unit": { "enum": ["celsius", "fahrenheit"] },
                    "days": { "type": "integer", "minimum": 1, "maximum": 14 }
                },
                "required": ["city", "days"],
                "additionalProperties": false
            }),
        ),
        ("no-arguments", json!({ "type": "object", "properties": {}, "additionalProperties": false })),
        (
            "nested",
            json!({
                "type": "object",
                "properties": { "list": { "type": "array", "items": { "$ref": "#/$defs/item" }, "maxItems": 2 } },
                "required": ["list"],
                "additionalProperties": false,
                "$defs": { "item": { "type": "object", "properties": { "a": { "type": ["boolean", "null"] } },
                    "required": ["a"], "additionalProperties": false } }
            }),
        ),
        (
            "limited",
            json!({
                "type": "object",
                "properties": {
                    "code": { "type": "string", "pattern": "^[A-Z]{2}-[0-9]+$" },
                    "name": { "type": "string", "minLength": 2, "maxLength": 5 },
                    "day": { "type": "string", "format": "date" },
                    "kind": { "anyOf": [{ "const": "a" }, { "type": "array", "items": { "type": "integer" }, "minItems": 1,
                        "maxItems": 3 }] }
                },
                "required": ["code", "name", "day"],
                "additionalProperties": false
            }),
        ),
    ]
}

fn all_tools() -> Vec<Tool> {
    let tool = |(name, schema): (&str, Value)| Tool {
        name: name.to_owned(),
        parameters: Some(schema),
        schema: SchemaUse::Strict,
        input: None,
    };
    tools().into_iter().map(tool).collect()
}

fn grammar(format: &ToolCallFormat, count: CallCount, start: CallStart) -> Option<Grammar> {
    tool_calls(format.written()?, &all_tools(), (count, start), &tokenizer(), &GrammarLimits::default())
        .unwrap()
}

/// The names and arguments of the calls, and the text beside them.
fn parse(format: &ToolCallFormat, text: &str) -> (Vec<(String, Value)>, String) {
    let patch = ("apply_patch", json!({ "type": "object", "properties": { "input": { "type": "string" } } }));
    let tools = tools().into_iter().chain([patch]);
    let list: Vec<Value> =
        tools.map(|(name, schema)| json!({ "name": name, "parameters": schema })).collect();
    let schemas = ToolSchemas::new(&Value::Array(list));
    // Where a prompt ends like this, the calls begin with it.
    let prompt = ">>>";
    let mut parser = OutputParser::new(prompt, ReasoningFormat::named(format.name), Some((format, &schemas)));
    let deltas: Vec<Delta> = parser.push(text).into_iter().chain(parser.finish()).collect();
    let (mut calls, mut rest) = (Vec::new(), String::new());
    for delta in deltas {
        match delta {
            Delta::ToolCallStart { name, .. } => calls.push((name, String::new())),
            Delta::ToolCallArguments(part) => calls.last_mut().unwrap().1.push_str(&part),
            Delta::Text(text) => rest.push_str(&text),
            Delta::Reasoning(_) | Delta::ToolCallEnd(_) => {}
        }
    }
    let value = |(name, arguments): (String, String)| {
        let value = serde_json::from_str(&arguments);
        (name, value.unwrap_or_else(|error| panic!("{}: {error}: {arguments}: {text}", format.name)))
    };
    (calls.into_iter().map(value).collect(), rest)
}

fn check(format: &ToolCallFormat, text: &str, count: CallCount) -> usize {
    let (calls, rest) = parse(format, text);
    assert!(rest.trim().is_empty(), "{}: {rest:?} of {text:?}", format.name);
    assert!(
        !calls.is_empty() && (count == CallCount::Several || calls.len() == 1),
        "{}: {text:?}",
        format.name
    );
    for (name, arguments) in &calls {
        let schema = tools().into_iter().find(|(known, _)| known == name).map(|(_, schema)| schema);
        let schema = schema.unwrap_or_else(|| panic!("{}: {name:?} is no tool", format.name));
        if let Err(error) = jsonschema::validate(&schema, arguments) {
            panic!("{}: {error}: {arguments} of {text:?}", format.name);
        }
    }
    calls.len()
}

/// What ends free texts in reasoning and in arguments.
fn ending(format: &ToolCallFormat) -> String {
    let written = format.written().unwrap();
    let reasoning = written.reasoning.map_or("", |reasoning| reasoning.end);
    let arguments = match written.style {
        ArgumentStyle::Json | ArgumentStyle::Keywords => "\"".to_owned(),
        ArgumentStyle::Parameters { end, .. } => end.to_owned(),
        ArgumentStyle::Notation(notation) => match notation.key_again {
            Some([before, behind]) => {
                ["city", "code", "name", "day", "input"].map(|key| [before, key, behind].concat()).concat()
            }
            None => notation.string[1].to_owned(),
        },
    };
    [reasoning, &arguments].concat()
}

#[test]
fn what_every_format_writes_is_read_as_valid_calls() {
    let written = TOOL_CALL_FORMATS.iter().filter(|format| format.written().is_some());
    let (mut formats, mut several) = (0, 0);
    for format in written {
        formats += 1;
        for (count, start) in [(CallCount::One, CallStart::Answer), (CallCount::Several, CallStart::Answer)] {
            let grammar = grammar(format, count, start).unwrap();
            for seed in 0..12 {
                let walked = Walk { ending: &ending(format), ..Walk::new(&grammar, seed) }.run();
                several += usize::from(check(format, &walked.text, count) > 1);
            }
        }
    }
    println!("{formats} formats, {several} messages of several calls");
    assert!(formats == TOOL_CALL_FORMATS.len() && several > 100, "{formats} {several}");
}

#[test]
fn behind_its_marker_a_call_is_as_valid() {
    let mut formats = 0;
    for format in TOOL_CALL_FORMATS.iter().filter(|format| format.written().is_some()) {
        let Some(grammar) = grammar(format, CallCount::One, CallStart::Marker) else { continue };
        formats += 1;
        for seed in 0..6 {
            let walked = Walk { ending: &ending(format), ..Walk::new(&grammar, seed) }.run();
            let written = format.written().unwrap();
            let head = [written.begin, written.name].concat();
            let begin = head.split_once(written.marker).map_or("", |(before, _)| before);
            let text = format!("{begin}{}{}", written.marker, walked.text);
            check(format, &text, CallCount::One);
        }
    }
    assert!(formats > 25);
}

#[test]
fn a_schema_that_is_not_supported_is_refused_only_where_it_is_strict() {
    let hermes = ToolCallFormat::named("hermes").unwrap().written().unwrap();
    let make = |schema: SchemaUse| {
        let parameters = Some(json!({ "properties": { "a": { "uniqueItems": true } } }));
        let tools = [Tool { name: "f".into(), parameters, schema, input: None }];
        let shape = (CallCount::One, CallStart::Answer);
        tool_calls(hermes, &tools, shape, &tokenizer(), &GrammarLimits::default())
    };
    assert!(make(SchemaUse::Lenient).is_ok());
    assert_eq!(make(SchemaUse::Strict).unwrap_err().path, "[0].properties.a.uniqueItems");
}

#[test]
fn an_answer_that_matches_may_stand_for_calls() {
    let hermes = ToolCallFormat::named("hermes").unwrap();
    let tools = all_tools();
    let (tokenizer, limits) = (tokenizer(), GrammarLimits::default());
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"],
        "additionalProperties": false });
    let answers = [
        Grammar::json_schema(&schema),
        Grammar::Choice(vec!["{yes".into(), "<no".into()]),
        Grammar::Regex("<[a-s]{3}>".into()),
    ];
    for answer in answers {
        let written = hermes.written().unwrap();
        let grammar = calls_or_answer(written, &tools, CallCount::One, &answer, (&tokenizer, &limits));
        let grammar = grammar.unwrap().unwrap();
        let (mut calls, mut texts) = (0, 0);
        for seed in 0..40 {
            let walked = Walk { ending: "\"", ..Walk::new(&grammar, seed) }.run();
            match walked.text.starts_with("<tool_call>") {
                true => calls += check(hermes, &walked.text, CallCount::One),
                false => texts += 1,
            }
        }
        assert!(calls > 0 && texts > 0, "{calls} calls, {texts} texts by {answer:?}");
    }
}

#[test]
fn without_a_marker_an_answer_is_valid_calls_or_a_text_that_is_none() {
    let (tokenizer, limits) = (tokenizer(), GrammarLimits::default());
    let mut formats = Vec::new();
    for format in TOOL_CALL_FORMATS {
        let written = format.written().unwrap();
        let grammar = calls_or_text(written, &all_tools(), CallCount::One, (&tokenizer, &limits)).unwrap();
        assert_eq!(grammar.is_none(), !written.marker.is_empty(), "{}", format.name);
        let Some(grammar) = grammar else { continue };
        formats.push(format.name);
        let begin = written.answer.unwrap().begin;
        for text in ["Hello [there]\n{\"city\": 1}\n", "x", "Call: (1)"] {
            assert_eq!(common::rest_of(&grammar, &format!("{begin}{text}")), "", "{}: {text}", format.name);
        }
        let call = match format.name {
            "llama-4" => "[get_weather(city=1)]",
            "functionary-v3.2" => "get_weather\n{\"city\": 1}",
            "command-r" => {
                "Action:\n```json\n[{\"tool_name\": \"get_weather\", \"parameters\": {\"city\": 1}}]```"
            }
            _ => "{\"name\": \"get_weather\", \"parameters\": {\"city\": 1}, \"arguments\": {\"city\": 1}}",
        };
        for call in [call.to_owned(), format!("\n{call}")] {
            let (calls, _) = parse(format, &call);
            let rest = common::rest_of(&grammar, &call);
            assert!(calls.is_empty() || !rest.is_empty(), "{}: {call}", format.name);
        }
        assert_eq!(parse(format, call).0.len(), 1, "{}", format.name);
    }
    assert!(formats.len() == 6, "{formats:?}");
}

/// A grammar of texts with line breaks, quotes and backslashes, as that of Codex's patches.
const PATCH: &str = r#"
start: begin hunk~1..2 "*** End" LF?
begin: "*** Begin" LF // the first line
hunk: "@@ \"" /[a-z\\]{1,12}/ "\"" LF line~1..3
line: ("+" | "-") /[^\n]{0,8}/ LF
%import common.LF
"#;

/// With greedy lines, alternatives and aliases.
const GREEDY: &str = r#"
start: "*** Begin" LF file+ "*** End" LF?
file: added | removed | changed
added: "*** Add: " name LF added_line+
removed: "*** Delete: " name LF
changed: "*** Update: " name LF moved? change?
name: /(.+)/
added_line: "+" /(.*)/ LF -> line
moved: "*** Move: " name LF
change: (context | line)+ last?
context: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF
last: "*** End of File" LF
%import common.LF
"#;

#[test]
fn an_input_of_greedy_lines_can_be_written_in_every_format() {
    let patch = "*** Begin\n*** Add: src/a \"b\".rs\n+fn main() {\n+    println!(\"é\\n\");\n+}\n*** Delete: c\n*** Update: d\n\
                 *** Move: e\n@@ fn x\n-old\n+new\t<tag>\n same\n*** End of File\n*** End";
    for format in TOOL_CALL_FORMATS {
        let Some(written) = format.written() else { continue };
        let tool = Tool {
            name: "apply_patch".into(),
            parameters: None,
            schema: SchemaUse::Strict,
            input: Some(Grammar::Lark(GREEDY.to_owned())),
        };
        let shape = (CallCount::One, CallStart::Answer);
        let grammar = tool_calls(written, &[tool], shape, &tokenizer(), &GrammarLimits::default());
        let head = [written.begin, written.name, &NAME.to_string(), written.arguments].concat();
        let head = head.replace(NAME, "apply_patch").replace(IDENTIFIER, "1").replace(JSON_TYPE, "number");
        let json = json!(patch).to_string();
        let input = match written.style {
            ArgumentStyle::Json => format!("{{\"input\": {json}}}"),
            ArgumentStyle::Keywords => format!("input={json}"),
            ArgumentStyle::Parameters { key, value, end, .. } => [key, "input", value, patch, end].concat(),
            ArgumentStyle::Notation(notation) => notation.object_of_text("input").join(patch),
        };
        let text = [head.as_str(), &input, written.call_end, written.end].concat();
        let rest = common::rest_of(&grammar.unwrap().unwrap(), &text);
        assert_eq!(rest, "", "{}: {text}", format.name);
        let (calls, _) = parse(format, &text);
        assert_eq!(calls[0].1["input"].as_str(), Some(patch), "{}", format.name);
    }
}

/// Whether the text is of [`PATCH`].
fn is_patch(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("*** Begin\n") else { return false };
    let Some(lines) = rest.strip_suffix("*** End").or_else(|| rest.strip_suffix("*** End\n")) else {
        return false;
    };
    lines.starts_with("@@ \"")
        && lines
            .lines()
            .all(|line| line.starts_with(['+', '-']) || (line.starts_with("@@ \"") && line.ends_with('"')))
}

#[test]
fn the_input_of_a_custom_tool_matches_its_grammar_in_every_format() {
    let tools = [
        (Grammar::Lark(PATCH.to_owned()), is_patch as fn(&str) -> bool),
        (Grammar::Regex(r#"[a-c]"\n[0-9]{2}"#.to_owned()), |text| text.len() == 5 && text.contains("\"\n")),
    ];
    let mut texts = 0;
    for format in TOOL_CALL_FORMATS {
        let Some(written) = format.written() else { continue };
        for (input, is_right) in &tools {
            let tool = Tool {
                name: "apply_patch".into(),
                parameters: None,
                schema: SchemaUse::Strict,
                input: Some(input.clone()),
            };
            let shape = (CallCount::One, CallStart::Answer);
            let grammar = tool_calls(written, &[tool], shape, &tokenizer(), &GrammarLimits::default());
            let grammar = grammar.unwrap().unwrap();
            for seed in 0..8 {
                let walked = Walk { ending: &ending(format), ..Walk::new(&grammar, seed) }.run();
                let (calls, rest) = parse(format, &walked.text);
                assert!(rest.trim().is_empty() && calls.len() == 1, "{}: {:?}", format.name, walked.text);
                let text = calls[0].1["input"].as_str().unwrap();
                assert!(is_right(text), "{}: {text:?} of {:?}", format.name, walked.text);
                texts += 1;
            }
        }
    }
    assert!(texts > 300, "{texts}");
}

/// Schemas that are short, and long or endless where they are written as rules.
fn growing_schemas() -> Vec<(&'static str, Value)> {
    let object =
        |member: Value| json!({ "type": "object", "properties": { "a": member }, "required": ["a"] });
    let mut chain = object(json!({ "$ref": "#/$defs/d0" }));
    for at in 0..6000 {
        chain["$defs"][format!("d{at}")] = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
    }
    chain["$defs"]["d6000"] = json!({ "type": "string" });
    let mut itself = object(json!({ "$ref": "#/$defs/d" }));
    itself["$defs"] = json!({ "d": { "$ref": "#/$defs/d" } });
    let mut nested = chain.clone();
    for at in 0..6000 {
        nested["$defs"][format!("d{at}")] = object(json!({ "$ref": format!("#/$defs/d{}", at + 1) }));
    }
    // Each definition behind each member's name.
    let reference = |at: usize| json!({ "$ref": format!("#/$defs/d{at}") });
    let members: Value =
        (0..100).map(|at| (format!("m{at}"), reference(at))).collect::<serde_json::Map<_, _>>().into();
    let mut pairs = object(reference(0));
    for at in 0..100 {
        pairs["$defs"][format!("d{at}")] = json!({ "type": "object", "properties": members });
    }
    vec![
        ("a chain of references", chain),
        ("a reference to itself", itself),
        ("a chain of objects", nested),
        ("definitions and members", pairs),
        (
            "least items",
            object(json!({ "type": "array", "items": { "type": "string" }, "minItems": u32::MAX })),
        ),
        (
            "most items",
            object(json!({ "type": "array", "items": { "type": "string" }, "maxItems": u64::MAX })),
        ),
        (
            "many items",
            object(
                json!({ "type": "array", "items": { "type": "null" }, "minItems": 9000, "maxItems": 90_000 }),
            ),
        ),
        ("least characters", object(json!({ "type": "string", "minLength": u32::MAX }))),
        ("most characters", object(json!({ "type": "string", "maxLength": u64::MAX }))),
        (
            "a repeated repeat",
            object(json!({ "type": "string", "pattern": "^((((a{1,99}){1,99}){1,99}){1,99}){1,99}$" })),
        ),
    ]
}

#[test]
fn schemas_that_grow_where_they_are_written_are_refused_or_harmless() {
    let (tokenizer, limits) = (tokenizer(), GrammarLimits::default());
    let compiler = common::compiler(limits.clone());
    let (mut compiled, mut refused) = (0, 0);
    // One of each way in which arguments are written.
    for format in ["hermes", "llama-4", "qwen3-coder", "gemma-4", "minimax-m3"].map(ToolCallFormat::named) {
        let format = format.unwrap();
        let written = format.written().unwrap();
        for (name, schema) in growing_schemas() {
            let tool =
                Tool { name: "f".into(), parameters: Some(schema), schema: SchemaUse::Strict, input: None };
            let shape = (CallCount::Several, CallStart::Answer);
            let started = std::time::Instant::now();
            let outcome = tool_calls(written, &[tool], shape, &tokenizer, &limits)
                .and_then(|grammar| compiler.compile(&grammar.unwrap(), 1));
            println!("{:>9.1?} {} {name}: {:?}", started.elapsed(), format.name, outcome.as_ref().err());
            match outcome {
                Ok(_) => compiled += 1,
                Err(error) => {
                    refused += 1;
                    assert!(
                        error.message.len() < 500 && !error.message.contains("panic"),
                        "{}: {name}: {error}",
                        format.name
                    );
                }
            }
        }
    }
    assert!(compiled > 0 && refused > 0, "{compiled} {refused}");
}
