//! Small templates against what Python's jinja2 makes of them: see `reference/reference.py`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::common::{check, render, render_with};
use expect_test::expect;
use omnibus_jinja::{Error, Limits};
use serde_json::Value;

#[test]
fn expressions_and_statements_match_jinja2() {
    let reference: Value = serde_json::from_str(include_str!("../reference/cases.json")).unwrap();
    let context = reference["context"].as_object().unwrap();
    let mut wrong = Vec::new();
    let cases = reference["cases"].as_array().unwrap();
    for case in cases {
        let source = case[0].as_str().unwrap();
        let rendered = render_with(source, context, &Limits::default());
        match (&case[1], rendered) {
            (Value::String(wanted), Ok(text)) if *wanted == text => {}
            (Value::Object(_), Err(_)) => {}
            (wanted, rendered) => wrong.push(format!("{source:?}: {rendered:?} is not {wanted}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn raise_exception_is_an_error_with_its_message() {
    let error = render("{{ raise_exception('Roles must alternate!') }}").unwrap_err();
    assert_eq!(error, Error::Raised { message: "Roles must alternate!".to_owned() });
    assert_eq!(error.to_string(), "Roles must alternate!");
}

#[test]
fn errors_name_the_line() {
    check("a\n{{ messages.x.y }}", expect!["error: line 2: 'list object' has no attribute 'x'"]);
    check("a\n\n{% for %}", expect!["error: line 3: expected a name, found the end of the tag"]);
    check(
        "{% include 'secrets' %}",
        expect!["error: line 1: 'include' needs another file, and a chat template has only itself"],
    );
    check("{{ x | shout }}", expect!["error: line 1: No filter named 'shout' found."]);
    check(
        "{{ messages.append(1) }}",
        expect!["error: line 1: access to attribute 'append' of 'list' object is unsafe."],
    );
}

#[test]
fn a_template_can_replace_a_function() {
    check("{% set strftime_now = 3 %}{{ strftime_now }}", expect!["3"]);
    check("{{ strftime_now(format='%Y') }}", expect!["2026"]);
    check("{{ strftime_now(3) }}", expect!["error: line 1: argument must be str, not int"]);
}
