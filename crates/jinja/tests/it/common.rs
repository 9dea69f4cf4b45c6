//! Rendering with the names that all tests give.

#![allow(dead_code, reason = "each test uses a part")]

use expect_test::Expect;
use jiff::civil::{DateTime, date};
use omnibus_jinja::{Context, Error, Limits, RenderError, Template};
use serde_json::{Map, Value, json};

/// A context with these names, one message where there are none, and `strftime_now`.
pub fn context(names: &Map<String, Value>, limits: &Limits, now: DateTime) -> Result<Context, Error> {
    let mut context = Context::new(limits);
    let messages = context.json(&json!([{"role": "user", "content": "Hi"}]))?;
    context.define("messages", messages);
    for (name, value) in names {
        let value = context.json(value)?;
        context.define(name, value);
    }
    context.define_function("strftime_now", "format", move |format| {
        if format.len() > 1024 {
            return Err(RenderError::Limit("length of a date format"));
        }
        jiff::fmt::strtime::format(format, now).map_err(|error| RenderError::Failed(error.to_string()))
    });
    Ok(context)
}

pub fn render_with(source: &str, names: &Map<String, Value>, limits: &Limits) -> Result<String, Error> {
    let template = Template::parse(source, limits)?;
    template.render(context(names, limits, date(2026, 3, 9).at(7, 5, 2, 0))?)
}

pub fn render(source: &str) -> Result<String, Error> {
    render_with(source, &Map::new(), &Limits::default())
}

pub fn check(source: &str, expected: Expect) {
    expected.assert_eq(&render(source).unwrap_or_else(|error| format!("error: {error}")));
}
