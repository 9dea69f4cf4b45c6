//! The chat templates of published models, with typed messages, against what Python's jinja2 makes of them. They are
//! others' data and lie beside the repository; without them the test says so.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use jiff::civil::date;
use omnibus_text::{ChatTemplate, Error, GenerationPrompt, RenderInput};
use serde_json::Value;

/// Starts of the messages of Python's type errors. A template that ends in one may render here, or fail with another
/// message.
const TYPE_ERRORS: &[&str] = &[
    "'",
    "can only concatenate",
    "access to attribute",
    "Object of type",
    "Can only get item pairs",
    "argument of type",
    "No filter named",
    "object of type",
    "None has no element",
];

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn render(template: &ChatTemplate, case: &Value) -> Result<String, Error> {
    let mut kwargs = case.as_object().unwrap().clone();
    let messages = common::messages(&kwargs.remove("messages").unwrap());
    let tools = kwargs.remove("tools");
    let documents = kwargs.remove("documents");
    let generation_prompt = match kwargs.remove("add_generation_prompt") {
        Some(Value::Bool(false)) => GenerationPrompt::Omit,
        _ => GenerationPrompt::Add,
    };
    let special_tokens =
        [("bos_token".to_owned(), "<BOS>".to_owned()), ("eos_token".to_owned(), "<EOS>".to_owned())];
    template.render(&RenderInput {
        messages: &messages,
        tools: tools.as_ref(),
        documents: documents.as_ref(),
        generation_prompt,
        special_tokens: &special_tokens,
        kwargs: &kwargs,
        now: date(2026, 11, 20).at(9, 30, 5, 0),
    })
}

#[test]
fn published_templates_match_jinja2() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/templates");
    if !shared.is_dir() {
        println!("skipped: {} does not exist", shared.display());
        return;
    }
    let cases = read(&shared.join("cases.json"));
    let (mut equal, mut refused, mut lenient, mut wrong) = (0, 0, 0, Vec::new());
    let mut sources: Vec<_> =
        std::fs::read_dir(shared.join("jinja")).unwrap().map(|entry| entry.unwrap().path()).collect();
    sources.sort();
    let templates = sources.len();
    for source in sources {
        let name = source.file_stem().unwrap().to_str().unwrap();
        let goldens = read(&shared.join("goldens").join(format!("{name}.json")));
        let template = match ChatTemplate::new(&std::fs::read_to_string(&source).unwrap()) {
            Ok(template) => template,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let goldens: BTreeMap<String, Value> = serde_json::from_value(goldens).unwrap();
        for (case, golden) in goldens {
            let rendered = render(&template, &cases[&case]);
            match (golden["text"].as_str(), golden["error"].as_str(), rendered) {
                (Some(wanted), _, Ok(text)) if text == wanted => equal += 1,
                (Some(wanted), _, Ok(text)) => {
                    let at = text.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count();
                    let near = |text: &str| {
                        let around: String =
                            String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(30)..])
                                .chars()
                                .take(90)
                                .collect();
                        around
                    };
                    wrong.push(format!("{name}/{case}: {:?} is not {:?}", near(&text), near(wanted)));
                }
                (Some(_), _, Err(error)) => wrong.push(format!("{name}/{case}: {error}")),
                (_, Some(wanted), Err(Error::TemplateRaised { message })) if message == wanted => {
                    refused += 1
                }
                (_, Some(wanted), Err(Error::TemplateFailed { .. }))
                    if TYPE_ERRORS.iter().any(|start| wanted.starts_with(start)) =>
                {
                    refused += 1;
                }
                (_, Some(wanted), Ok(_)) if TYPE_ERRORS.iter().any(|start| wanted.starts_with(start)) => {
                    lenient += 1
                }
                (_, wanted, rendered) => wrong.push(format!("{name}/{case}: {rendered:?} is not {wanted:?}")),
            }
        }
    }
    println!(
        "{templates} templates: {equal} renderings equal, {refused} refusals, {lenient} more lenient than Python"
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(equal >= 1462, "only {equal} renderings were compared");
}
