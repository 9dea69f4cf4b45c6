//! Reasoning that chat templates write, parsed back under every split: the samples, and those of published models, which
//! are others' data and lie beside the repository.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do, and say what ran"
)]

use crate::deltas::Setup;
use crate::published::{Answer, Template, templates};
use omnibus_testing::reference::Found;
use omnibus_text::{Delta, ReasoningFormat, ToolCallFormat, ToolSchemas};
use serde_json::{Value, json};

/// Templates without a reasoning format.
const NO_FORMAT: &[&str] = &[
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "GigaChat3-10B-A1.8B",
    "GigaChat3.1-10B-A1.8B",
    "Kimi-K2-Instruct",
    "LFM2-8B-A1B",
    "MiMo-VL",
    "MiniMax-M1",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen3-Coder",
    "fireworks-ai-llama-3-firefunction-v2",
    "google-gemma-2-2b-it",
    "ibm-granite-granite-4.0",
    "ibm-granite-granite-4.1",
    "meetkai-functionary-medium-v3.1",
    "meetkai-functionary-medium-v3.2",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "moonshotai-Kimi-K2",
    "unsloth-mistral-Devstral-Small-2507",
];

/// Templates that open reasoning for the model, and leave it out of answers in the conversation.
const LEFT_OUT: &[&str] = &[
    "Kimi-K2-Thinking",
    "LFM2.5-Instruct",
    "NVIDIA-Nemotron-Nano-v2",
    "Qwen-QwQ-32B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "ibm-granite-granite-3.3-2B-Instruct",
    "llama-cpp-deepseek-r1",
    "llama-cpp-rwkv-world",
    "unsloth-Apriel-1.5",
];

/// Templates whose text does not say what is reasoning, with the reason.
const AMBIGUOUS: &[(&str, &str)] =
    &[("NVIDIA-Nemotron-Nano-v2", "it opens reasoning before each answer, drops it, and closes nothing")];

/// Reasoning and an answer.
const CASES: &[(&str, &str)] = &[
    ("two and two", "4"),
    ("Zürich 👩‍👩‍👧\n\n- \"a\" <b>\n- {\"a\": 1}", "It is\n\n```json\n{\"a\": [1]}\n```"),
    ("a < b, </thin <tool_call>", "<p>x</p> & <thinking"),
    ("", "No reasoning."),
];

/// Parses an answer. Whether the template wrote its reasoning, or how the deltas differ.
fn check(template: &Template, answer: &Answer<'_>) -> Result<bool, String> {
    let Some(format) = ReasoningFormat::of_template(template.source()) else { return Ok(false) };
    let tools = json!([{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
        "type": "object", "properties": {"a": {"type": "string", "description": "A."}},
    }}}]);
    let schemas = ToolSchemas::new(&tools);
    let tools = Some(&tools).filter(|_| !answer.calls.is_empty());
    let Ok((prompt, output)) = template.render_answer(answer, tools) else { return Ok(false) };
    let tool_format = ToolCallFormat::of_template(template.source()).filter(|_| tools.is_some());
    let tools = tool_format.map(|format| (format, &schemas));
    let setup = Setup { prompt: &prompt, reasoning: Some(format), tools };
    let found = parts(&setup.parse_every_split(&output));
    let if_written = |text: &str| if output.contains(text) { text.to_owned() } else { String::new() };
    let wanted = Parts {
        reasoning: if_written(answer.reasoning.unwrap_or_default()),
        text: if_written(answer.text),
        calls: answer
            .calls
            .iter()
            .filter(|(name, _)| output.contains(name))
            .map(|(_, json)| json.to_string())
            .collect(),
    };
    let is_written = !wanted.reasoning.is_empty();
    if found == wanted { Ok(is_written) } else { Err(format!("{}: {output:?}\n  is {found:?}", format.name)) }
}

/// The parts of a message.
#[derive(Debug, PartialEq, Eq)]
struct Parts {
    reasoning: String,
    text: String,
    calls: Vec<String>,
}

fn parts(deltas: &[Delta]) -> Parts {
    let mut parts = Parts { reasoning: String::new(), text: String::new(), calls: Vec::new() };
    for delta in deltas {
        match delta {
            Delta::Reasoning(text) => parts.reasoning.push_str(text),
            // Templates may end a message with line breaks of their own.
            Delta::Text(text) => parts.text.push_str(text.trim_end()),
            Delta::ToolCallStart { .. } => parts.calls.push(String::new()),
            Delta::ToolCallArguments(json) => parts.calls.last_mut().unwrap().push_str(json),
            Delta::ToolCallEnd(_) => {}
        }
    }
    parts
}

#[test]
fn reasoning_of_published_templates_is_parsed_back() {
    for (found, templates) in templates() {
        let (no_format, left_out) = match found {
            Found::Sample(_) => (&["plain"][..], &[][..]),
            Found::Whole(_) => (NO_FORMAT, LEFT_OUT),
        };
        check_all(&templates, no_format, left_out);
    }
}

/// `no_format`: the templates that write no reasoning; `left_out`: those that leave it out of all that is rendered here.
fn check_all(templates: &[Template], no_format: &[&str], left_out: &[&str]) {
    let (mut written, mut wrong) = (Vec::new(), Vec::new());
    let call: &[(&str, Value)] = &[("add", json!({"a": "</think>"}))];
    for template in templates.iter().filter(|one| AMBIGUOUS.iter().all(|(name, _)| *name != one.name)) {
        let mut writes = false;
        for (index, (reasoning, text)) in CASES.iter().enumerate() {
            for (text, calls) in [(*text, &[] as &[_]), ("", call)] {
                match check(template, &Answer { text, reasoning: Some(reasoning), calls }) {
                    Ok(is_written) => writes |= is_written,
                    Err(difference) => wrong.push(format!("{}/case {index}: {difference}", template.name)),
                }
            }
        }
        if writes {
            written.push(template.name.as_str());
        }
    }
    let names = |has_format: bool| {
        let templates = templates
            .iter()
            .filter(move |template| ReasoningFormat::of_template(template.source()).is_some() == has_format);
        templates.map(|template| template.name.as_str())
    };
    println!("{} templates, {} write reasoning", templates.len(), written.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(names(false).collect::<Vec<_>>(), no_format);
    assert_eq!(names(true).filter(|name| !written.contains(name)).collect::<Vec<_>>(), left_out);
}
