//! The chat templates of published models, with typed messages, against what Python's jinja2 makes of them. They are
//! others' data and lie beside the repository; without them the test says so.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do, and say what ran"
)]

use crate::renderings::{Expected, Rendered, compare};
use jiff::civil::date;
use omnibus_text::{ChatTemplate, Error, GenerationPrompt, RenderInput};
use serde_json::Value;

use crate::openai;

fn render(template: &ChatTemplate, case: &Value) -> Rendered {
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
        now: date(2026, 11, 20).at(9, 30, 5, 0),
    });
    match rendered {
        Ok(text) => Rendered::Text(text),
        Err(Error::TemplateRaised { message }) => Rendered::Raised(message),
        Err(error @ Error::TemplateFailed { .. }) => Rendered::Failed(error.to_string()),
        Err(error) => Rendered::Refused(error.to_string()),
    }
}

#[test]
fn published_templates_match_jinja2() {
    let Some(expected) = Expected::published() else { return };
    compare(&expected, 1462, ChatTemplate::new, render);
}
