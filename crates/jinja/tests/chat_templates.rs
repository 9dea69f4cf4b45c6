//! Chat templates against what Python's jinja2 makes of them: the sample in `reference/chat`, which always runs, and
//! those of 70 published models, which are others' data and lie beside the repository. Without them that test says so.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do, and say what ran"
)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::context;
use jiff::civil::{DateTime, date};
use omnibus_jinja::{ContextValue, Error, Limits, Template};
use serde_json::{Map, Value};

type Renderings = BTreeMap<String, BTreeMap<String, Value>>;

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

#[derive(Default)]
struct Counts {
    templates: usize,
    equal: usize,
    refused: usize,
    lenient: usize,
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn render(template: &Template, case: &Value, now: DateTime) -> Result<String, Error> {
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

/// The first difference of two texts, with what stands around it.
fn difference(text: &str, wanted: &str) -> String {
    let at = text.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count();
    let near = |text: &str| {
        let around = String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(30)..]).into_owned();
        around.chars().take(90).collect::<String>()
    };
    format!("{:?} is not {:?}", near(text), near(wanted))
}

/// Compares every rendering of the templates in `folder` with the expected one.
fn compare(folder: &Path, cases: &Value, expected: &Renderings, now: DateTime) -> Counts {
    let mut counts = Counts::default();
    let mut wrong = Vec::new();
    for (name, renderings) in expected {
        counts.templates += 1;
        let source = read(&folder.join(format!("{name}.jinja")));
        let template = match Template::parse(&source, &Limits::default()) {
            Ok(template) => template,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (case, rendering) in renderings {
            let rendering = rendering.get("text").unwrap_or(rendering);
            let error = rendering["error"].as_str().unwrap_or_default();
            let is_type_error = TYPE_ERRORS.iter().any(|start| error.starts_with(start));
            match (rendering.as_str(), render(&template, &cases[case], now)) {
                (Some(wanted), Ok(text)) if text == wanted => counts.equal += 1,
                (Some(wanted), Ok(text)) => {
                    wrong.push(format!("{name}/{case}: {}", difference(&text, wanted)))
                }
                (Some(_), Err(error)) => wrong.push(format!("{name}/{case}: {error}")),
                (None, Err(Error::Raised { message })) if message == error => counts.refused += 1,
                (None, Err(Error::Failed { .. })) if is_type_error => counts.refused += 1,
                (None, Ok(_)) if is_type_error => counts.lenient += 1,
                (None, rendered) => wrong.push(format!("{name}/{case}: {rendered:?} is not {error:?}")),
            }
        }
    }
    let Counts { templates, equal, refused, lenient } = counts;
    println!(
        "{templates} templates: {equal} renderings equal, {refused} refusals, {lenient} more lenient than Python"
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    counts
}

#[test]
fn sample_templates_match_jinja2() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/chat");
    let reference: Value = serde_json::from_str(&read(&folder.join("renderings.json"))).unwrap();
    let expected: Renderings = serde_json::from_value(reference["renderings"].clone()).unwrap();
    let counts = compare(&folder, &reference["conversations"], &expected, date(2026, 3, 9).at(7, 5, 2, 0));
    assert!(counts.equal >= 91, "only {} renderings were compared", counts.equal);
}

#[test]
fn published_templates_match_jinja2() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/templates");
    if !shared.is_dir() {
        println!("skipped: {} does not exist", shared.display());
        return;
    }
    let cases: Value = serde_json::from_str(&read(&shared.join("cases.json"))).unwrap();
    let mut expected = Renderings::new();
    for entry in std::fs::read_dir(shared.join("jinja")).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        let renderings = read(&shared.join("goldens").join(format!("{name}.json")));
        expected.insert(name, serde_json::from_str(&renderings).unwrap());
    }
    let counts = compare(&shared.join("jinja"), &cases, &expected, date(2026, 11, 20).at(9, 30, 5, 0));
    assert!(counts.equal >= 1462, "only {} renderings were compared", counts.equal);
}
