//! Chat templates against what Python's jinja2 makes of them: the sample in `reference/chat`, which always runs, and
//! those of 70 published models, which are others' data and lie beside the repository. Without them that test says so.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do, and say what ran"
)]

use crate::common::context;
use jiff::civil::{DateTime, date};
use omnibus_jinja::{ContextValue, Error, Limits, Template};
use omnibus_testing::renderings::{Expected, Rendered, compare};
use serde_json::{Map, Value};

fn parse(source: &str) -> Result<Template, Error> {
    Template::parse(source, &Limits::default())
}

fn render(template: &Template, case: &Value, now: DateTime) -> Rendered {
    match text(template, case, now) {
        Ok(text) => Rendered::Text(text),
        Err(Error::Raised { message }) => Rendered::Raised(message),
        Err(error @ Error::Failed { .. }) => Rendered::Failed(error.to_string()),
        Err(error) => Rendered::Refused(error.to_string()),
    }
}

fn text(template: &Template, case: &Value, now: DateTime) -> Result<String, Error> {
    let mut names: Map<String, Value> = case.as_object().unwrap().clone();
    names.entry("add_generation_prompt").or_insert(true.into());
    let mut context = context(&names, &Limits::default(), now)?;
    for name in ["tools", "documents"] {
        if !names.contains_key(name) {
            context.define(name, ContextValue::NONE);
        }
    }
    for (name, text) in [("bos_token", "<BOS>"), ("eos_token", "<EOS>")] {
        let text = context.text(text)?;
        context.define(name, text);
    }
    template.render(context)
}

#[test]
fn sample_templates_match_jinja2() {
    compare(&Expected::sample(), 91, parse, |template, case| {
        render(template, case, date(2026, 3, 9).at(7, 5, 2, 0))
    });
}

#[test]
fn published_templates_match_jinja2() {
    let Some(expected) = Expected::published() else { return };
    compare(&expected, 1462, parse, |template, case| {
        render(template, case, date(2026, 11, 20).at(9, 30, 5, 0))
    });
}
