//! Matchers over the embedded model's tokenizer: random walks that pick any allowed token.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Walk, compiler, encode, tokenizer, walk};
use expect_test::{Expect, expect};
use omnibus_grammar::{
    Grammar, GrammarLimits, MatchState, Matcher, Opening, Reasoning, SchemaUse, Whitespace,
};
use serde_json::{Value, json};

fn schema(schema: &Value) -> Grammar {
    Grammar::JsonSchema {
        schema: schema.to_string(),
        whitespace: Whitespace::None,
        schema_use: SchemaUse::Strict,
    }
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": { "name": { "enum": ["Ada", "Bob"] }, "age": { "type": "integer", "minimum": 1, "maximum": 99 } },
        "required": ["name", "age"],
        "additionalProperties": false
    })
}

#[test]
fn every_walk_ends_in_what_the_grammar_describes() {
    for seed in 0..50 {
        let text = walk(&schema(&person()), seed).text;
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(["Ada", "Bob"].contains(&value["name"].as_str().unwrap()), "{text}");
        assert!((1..100).contains(&value["age"].as_u64().unwrap()), "{text}");
        let choice =
            walk(&Grammar::Choice(vec!["yes".into(), "yes, \"sir\"\n".into(), "no".into()]), seed).text;
        assert!(["yes", "yes, \"sir\"\n", "no"].contains(&choice.as_str()), "{choice}");
        let regex = walk(&Grammar::Regex(r"^\d{3}-[a-c]+?x$".into()), seed).text;
        assert!(regex.len() > 5 && regex.ends_with('x') && regex.as_bytes()[3] == b'-', "{regex}");
        let lark = walk(&Grammar::Lark("start: \"(\" start \")\" | \"ab\"".into()), seed).text;
        assert!(lark.replace(['(', ')'], "") == "ab", "{lark}");
    }
}

#[test]
fn forced_tokens_are_what_sampling_under_masks_gives() {
    for seed in 0..20 {
        let sampled = Walk { take_forced: false, ..Walk::new(&schema(&person()), seed) }.run();
        let jumped = Walk { take_forced: true, ..Walk::new(&schema(&person()), seed) }.run();
        assert!(jumped.forced > 0, "{:?}", jumped.text);
        assert_eq!((sampled.tokens, sampled.text), (jumped.tokens, jumped.text));
    }
}

#[test]
fn forced_text_is_tokenized_as_the_tokenizer_does() {
    let walked = walk(&Grammar::Choice(vec!["the bus stops here and nowhere else".into()]), 1);
    assert_eq!(walked.tokens, encode("the bus stops here and nowhere else"));
}

#[test]
fn a_replayed_matcher_goes_on_with_the_same_masks() {
    let compiled = compiler(GrammarLimits::default()).compile(&schema(&person()), 1).unwrap();
    let whole = walk(&schema(&person()), 7);
    for cut in 0..whole.tokens.len() {
        let mut first = Matcher::new(&compiled, &Opening::default(), &[]);
        let mut replayed = Matcher::new(&compiled, &Opening::default(), &[]);
        for token in &whole.tokens[..cut] {
            first.mask().unwrap();
            first.accept(*token).unwrap();
            replayed.accept(*token).unwrap();
        }
        assert_eq!(first.mask(), replayed.mask(), "after {cut} tokens");
    }
}

#[test]
fn text_never_becomes_a_special_token() {
    let special = tokenizer().special_ids().iter().next().copied().unwrap();
    let text = tokenizer().id_to_token(special).unwrap();
    let walked = walk(&Grammar::Choice(vec![format!("a {text} b")]), 3);
    assert_eq!(walked.text, format!("a {text} b"));
    assert!(!walked.tokens.contains(&special), "{walked:?}");
    let lark = format!("start: \"a\" <[{special}]> \"b\"");
    assert!(walk(&Grammar::Lark(lark), 3).tokens.contains(&special));
}

#[test]
fn a_grammar_begins_behind_reasoning() {
    let grammar = Grammar::Choice(vec!["yes".into()]);
    let compiled = compiler(GrammarLimits::default()).compile(&grammar, 1).unwrap();
    let stop = tokenizer().eos_ids().iter().next().copied().unwrap();
    let reasoning = Reasoning { opening: Vec::new(), closing: "</think>".into() };
    let opening = Opening { reasoning: Some(reasoning), marker: None };
    let mut matcher = Matcher::new(&compiled, &opening, &[stop]);
    for token in encode("no </thin") {
        let mask = matcher.mask().unwrap();
        assert!(mask.allows(token) && !mask.allows(stop), "thoughts are free, and are not the end");
        assert_eq!(matcher.accept(token).unwrap(), MatchState::Open);
        assert!(matcher.take_forced(9).unwrap().tokens.is_empty());
    }
    for token in encode("k>\n") {
        matcher.accept(token).unwrap();
    }
    let mask = matcher.mask().unwrap();
    assert!(!mask.allows(encode("no")[0]) && !mask.allows(stop));
    let mut state = MatchState::Open;
    for token in encode("yes") {
        assert!(matcher.mask().unwrap().allows(token));
        state = matcher.accept(token).unwrap();
    }
    assert_eq!(state, MatchState::Finished);
}

#[test]
fn a_model_may_open_reasoning_itself() {
    let compiled =
        compiler(GrammarLimits::default()).compile(&Grammar::Choice(vec!["yes".into()]), 1).unwrap();
    let open = encode("#")[0];
    let reasoning = Reasoning { opening: vec![open], closing: "##".into() };
    let opening = Opening { reasoning: Some(reasoning), marker: None };
    let mut thinks = Matcher::new(&compiled, &opening, &[]);
    assert!(thinks.mask().unwrap().allows(open));
    thinks.accept(open).unwrap();
    assert!(thinks.mask().unwrap().allows(encode("n")[0]));
    let mut answers = Matcher::new(&compiled, &opening, &[]);
    let first = encode("yes")[0];
    assert!(answers.mask().unwrap().allows(first) && !answers.mask().unwrap().allows(encode("n")[0]));
    answers.accept(first).unwrap();
    assert!(!answers.mask().unwrap().allows(open));
}

#[test]
fn a_marker_begins_the_grammar_each_time() {
    let grammar = Grammar::Choice(vec!["1]".into(), "2]".into()]);
    let compiled = compiler(GrammarLimits::default()).compile(&grammar, 1).unwrap();
    let stop = tokenizer().eos_ids().iter().next().copied().unwrap();
    let opening = Opening { reasoning: None, marker: Some("[call".into()) };
    let mut matcher = Matcher::new(&compiled, &opening, &[stop]);
    for part in ["free text [ca", "ll1] more [call2] and"] {
        for token in encode(part) {
            assert!(matcher.mask().unwrap().allows(token), "{part}");
            matcher.accept(token).unwrap();
        }
    }
    assert!(matcher.mask().unwrap().allows(stop));
    encode(" [call").into_iter().for_each(|token| _ = matcher.accept(token).unwrap());
    assert!(!matcher.mask().unwrap().allows(stop) && !matcher.mask().unwrap().allows(encode("3")[0]));
}

fn refused(grammar: &Grammar, expected: Expect) {
    let error = compiler(GrammarLimits::default()).compile(grammar, 1).unwrap_err();
    expected.assert_eq(&format!("{}: {}", error.path, error.message));
}

#[test]
fn what_cannot_be_compiled_is_an_error_of_one_line() {
    refused(
        &Grammar::Regex("a(".into()),
        expect![[
            r#": at 1(8): invalid regex "a(" (in regex): regex parse error: a( ^ error: unclosed group 1 | start: /a(/ ^"#
        ]],
    );
    refused(
        &Grammar::Lark("start: foo".into()),
        expect![[r#": at 1(8): unknown name: "foo" 1 | start: foo ^"#]],
    );
    refused(
        &schema(&json!({ "type": "string", "enum": [1] })),
        expect![": at the root of the schema: no value matches it: incompatible types"],
    );
    refused(
        &schema(&json!({ "type": "integer", "minimum": 3, "maximum": 1 })),
        expect![": at the root of the schema: no value matches it: minimum (3) is greater than maximum (1)"],
    );
    refused(&Grammar::Choice(vec![]), expect![": there is no choice"]);
    refused(&Grammar::Lark(" ".into()), expect![": the grammar is empty"]);
}
