//! Grammars that are meant to take memory or time: each is refused within the limits or harmless, and a request beside
//! them gives what it gives alone.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;

use crate::common::{complete, engine, run, wait_for};
use omnibus_engine::{
    Event, Failure, FinishReason, Grammar, Input, Request, Sampling, Settings, StructuredOutput,
};
use serde_json::{Map, Value, json};

/// What becomes of a grammar.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// A 400.
    Refused(String),
    /// It is compiled; the request ends or reaches its limit.
    Answered,
    /// A limit was met behind the first token.
    Failed(String),
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({ "type": "string" }), |inner, _| json!({ "type": "array", "items": inner }))
}

fn members(count: usize, value: &Value) -> Value {
    let properties: Map<String, Value> = (0..count).map(|at| (format!("m{at}"), value.clone())).collect();
    json!({ "type": "object", "properties": properties })
}

/// Each definition has the next one twice.
fn doubling(levels: usize) -> Value {
    let definition = |at: usize| {
        let next = format!("#/$defs/d{}", at + 1);
        let both =
            json!([{ "properties": { "a": { "$ref": next } } }, { "properties": { "b": { "$ref": next } } }]);
        (format!("d{at}"), json!({ "allOf": both }))
    };
    let mut all: Map<String, Value> = (0..levels).map(definition).collect();
    all.insert(format!("d{levels}"), json!({ "type": "integer" }));
    json!({ "$defs": all, "$ref": "#/$defs/d0" })
}

/// Each definition is what `link` makes of the next one.
fn chain(links: usize, link: fn(String) -> Value) -> Value {
    let definition = |at: usize| (format!("d{at}"), link(format!("#/$defs/d{}", at + 1)));
    let mut all: Map<String, Value> = (0..links).map(definition).collect();
    all.insert(format!("d{links}"), json!({ "type": "integer" }));
    json!({ "$defs": all, "$ref": "#/$defs/d0" })
}

fn schemas() -> Vec<(&'static str, Value)> {
    let alternatives = |count: usize| -> Vec<Value> {
        (0..count).map(|at| json!({ "properties": { format!("k{at}"): { "type": "string" } } })).collect()
    };
    vec![
        ("deep", nested(60)),
        ("too deep", nested(100)),
        ("a loop of references", json!({ "$defs": { "a": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" })),
        (
            "a loop through allOf",
            json!({ "$defs": { "a": { "allOf": [{ "$ref": "#/$defs/a" }, {}] } }, "$ref": "#/$defs/a" }),
        ),
        ("a chain of references", chain(6_500, |next| json!({ "$ref": next }))),
        ("a chain of lists", chain(5_500, |next| json!({ "items": { "$ref": next } }))),
        ("a reference to nothing", json!({ "$ref": "#/$defs/none" })),
        ("twice as much at each level", doubling(40)),
        ("ten thousand members", members(5_000, &json!({}))),
        ("a million items at least", json!({ "type": "array", "minItems": 1_000_000, "items": {} })),
        ("items without a limit", json!({ "type": "array", "maxItems": u64::MAX, "items": nested(20) })),
        ("a string of a billion", json!({ "type": "string", "minLength": 1_000_000_000 })),
        (
            "a long string of a pattern",
            json!({ "type": "string", "pattern": "^(a|b|ab)*c$", "minLength": 9999 }),
        ),
        (
            "a pattern that explodes",
            json!({ "type": "string", "pattern": "(a|aa)+(b|bb){1,900}[^c]{400}d{3,900}$" }),
        ),
        ("a pattern with look-behind", json!({ "type": "string", "pattern": "(?<=a)b" })),
        ("a pattern with a back-reference", json!({ "type": "string", "pattern": r"(a)\1" })),
        ("products of alternatives", json!({ "allOf": vec![json!({ "anyOf": alternatives(30) }); 12] })),
        ("oneOf of everything", json!({ "oneOf": vec![json!({ "type": "string" }); 200] })),
        (
            "ranges of huge numbers",
            json!({ "type": "number", "minimum": -1e308, "maximum": 1e308, "multipleOf": 1e-300 }),
        ),
        ("a multiple of a big prime", json!({ "type": "integer", "multipleOf": 2_147_483_647 })),
        ("an enumeration of thousands", json!({ "enum": (0..20_000).collect::<Vec<u32>>() })),
        ("required but impossible", json!({ "properties": { "a": false }, "required": ["a"] })),
        ("false", json!(false)),
        ("an empty enumeration", json!({ "enum": [] })),
        (
            "x-guidance of a client",
            json!({ "x-guidance": { "whitespace_pattern": "(a|aa)+{9999}" }, "type": "object" }),
        ),
    ]
}

fn texts() -> Vec<(&'static str, Grammar)> {
    let rules: String = (0..17_000).map(|at| format!("a{at}:a{}\n", at + 1)).collect();
    let rules = format!("start: a0\n{rules}a17000: \"b\"\n");
    let mut chain = "start: r0\n".to_owned();
    for at in 0..3000 {
        let _ = writeln!(chain, "r{at}: r{} r{} | \"a\"", at + 1, at + 1);
    }
    chain += "r3000: \"b\"\n";
    let ambiguous = "start: s\ns: s s | s s s | s s s s | A | B | \"\"\nA: /a+/\nB: /(a|b)*a(a|b){40}/\n";
    vec![
        ("nested repeats", Grammar::Regex("((((a{1,99}){1,99}){1,99}){1,99}){1,99}".into())),
        ("a subset construction that explodes", Grammar::Regex("(a|b)*a(a|b){400}".into())),
        ("classes of all of Unicode", Grammar::Regex(r"(\p{L}|\p{N}|[^\x00-\x7f]){1,5000}x".into())),
        ("a bracket bomb", Grammar::Regex("(".repeat(5000))),
        ("alternatives that overlap", Grammar::Regex(format!("({})*z", vec!["a?"; 600].join("|")))),
        ("many optional letters", Grammar::Regex(format!("{}{}", "a?".repeat(800), "a".repeat(800)))),
        ("ambiguous to the last", Grammar::Lark(ambiguous.into())),
        ("left and right recursion", Grammar::Lark("start: start start | \"a\" | \"\"".into())),
        ("a chain of doublings", Grammar::Lark(chain)),
        ("a chain of rules", Grammar::Lark(rules)),
        ("a rule without an end", Grammar::Lark("start: \"a\" start".into())),
        ("a repeat of a repeat", Grammar::Lark("start: (((\"a\"~1..999)~1..999)~1..999)~1..999".into())),
        ("prefix operators", Grammar::Lark(format!("start: A\nA: {}/a/", "~".repeat(9000)))),
        ("deep brackets", Grammar::Lark(format!("start: {}\"a\"{}", "(".repeat(3000), ")".repeat(3000)))),
        ("a schema inside that is no schema", Grammar::Lark("start: %json {\"type\": 5}".into())),
        ("an import of a file", Grammar::Lark("%import ../../etc/passwd\nstart: \"a\"".into())),
        ("a token that is not there", Grammar::Lark("start: <[99999999]>".into())),
        ("control characters", Grammar::Lark("start: \"\u{0}\u{1b}[2J\"".into())),
        ("a huge choice", Grammar::Choice((0..15_000).map(|at| format!("{at}")).collect())),
        ("a choice of one long text", Grammar::Choice(vec!["a".repeat(200_000)])),
    ]
}

fn request(id: String, grammar: Grammar) -> Request {
    let mut request = Request::new(id, Input::Text("the bus".to_owned()));
    request.sampling = Sampling { seed: Some(3), ..Sampling::default() };
    request.max_new_tokens = Some(12);
    request.structured = Some(StructuredOutput::new(grammar, "guided"));
    request
}

fn outcome(engine: &omnibus_engine::Handle, request: Request) -> Outcome {
    let refused = |failure: Failure| match failure {
        Failure::BadRequest { field, message } => {
            assert!(field.starts_with("guided") && message.lines().count() == 1, "{field}: {message}");
            Outcome::Refused(message)
        }
        other => Outcome::Failed(other.to_string()),
    };
    let mut stream = match engine.submit(request) {
        Ok(stream) => stream,
        Err(failure) => return refused(failure),
    };
    while let Some(event) = stream.blocking_next() {
        match event {
            Event::Failed(failure) => return refused(failure),
            Event::Finished { reason, .. } => {
                assert_ne!(reason, FinishReason::Cancelled);
                return Outcome::Answered;
            }
            Event::Started { .. }
            | Event::Prompt(_)
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. }
            | Event::Delta { .. } => {}
        }
    }
    panic!("a stream ends with an event")
}

#[test]
fn hostile_grammars_are_refused_or_harmless() {
    let engine = engine(Settings::default());
    let free = || complete("free", "all aboard the omnibus", 400);
    let alone = run(&engine, free()).text;
    let beside = engine.submit(free()).unwrap();
    let schemas = schemas().into_iter().map(|(name, schema)| (name, Grammar::json_schema(&schema)));
    let (mut refused, mut all) = (0, 0);
    for (name, grammar) in schemas.chain(texts()) {
        let started = std::time::Instant::now();
        let outcome = outcome(&engine, request(name.to_owned(), grammar));
        println!("{:>9.1?} {name}: {outcome:?}", started.elapsed());
        refused += usize::from(matches!(outcome, Outcome::Refused(_)));
        all += 1;
        assert!(!matches!(&outcome, Outcome::Failed(message) if message.contains("panic")), "{name}");
    }
    assert!(refused >= 15, "{refused} of {all}");
    assert_eq!(wait_for(beside).text, alone);
    assert_eq!(run(&engine, free()).text, alone);
    assert_eq!(engine.stats().engine_restarts_total, 0);
}
