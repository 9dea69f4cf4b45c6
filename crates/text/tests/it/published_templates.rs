//! Chat templates with typed messages, against what Python's jinja2 makes of them: the samples of the interpreter's tests,
//! and those of published models, which are others' data and lie beside the repository.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do, and say what ran"
)]

use jiff::civil::{DateTime, date};
use omnibus_testing::renderings::{Expected, Rendered, compare};
use omnibus_text::{ChatTemplate, Error, GenerationPrompt, RenderInput};
use serde_json::Value;

use crate::openai;

fn render(template: &ChatTemplate, case: &Value, now: DateTime) -> Rendered {
    let mut kwargs = case.as_object().unwrap().clone();
    let messages = openai::messages(&kwargs.remove("messages").unwrap());
    let tools = kwargs.remove("tools");
    let documents = kwargs.remove("documents");
    let generation_prompt = match kwargs.remove("add_generation_prompt") {
        Some(Value::Bool(false)) => GenerationPrompt::Omit,
        _ => GenerationPrompt::Add,
    };
    let special_tokens =
        [("bos_token".to_owned(), "<BOS>".to_owned()), ("eos_token".to_owned(), "<EOS>".to_owned())];
    let rendered = template.render(&RenderInput {
        messages: &messages,
        tools: tools.as_ref(),
        documents: documents.as_ref(),
        generation_prompt,
        reasoning_field: "reasoning_content",
        special_tokens: &special_tokens,
        kwargs: &kwargs,
        now,
    });
    match rendered {
        Ok(text) => Rendered::Text(text),
        Err(Error::TemplateRaised { message }) => Rendered::Raised(message),
        Err(error @ Error::TemplateFailed { .. }) => Rendered::Failed(error.to_string()),
        Err(error) => Rendered::Refused(error.to_string()),
    }
}

#[test]
fn sample_templates_match_jinja2() {
    let now = date(2026, 3, 9).at(7, 5, 2, 0);
    let mut expected = Expected::sample();
    for renderings in expected.renderings.values_mut() {
        // Typed messages have no parts of a type that no model has.
        renderings.retain(|case, _| !expected.cases[case].to_string().contains(r#""smell""#));
    }
    compare(&expected, 80, ChatTemplate::new, |template, case| render(template, case, now));
}

#[test]
fn published_templates_match_jinja2() {
    let Some(expected) = Expected::published() else { return };
    let now = date(2026, 11, 20).at(9, 30, 5, 0);
    compare(&expected, 1462, ChatTemplate::new, |template, case| render(template, case, now));
}
