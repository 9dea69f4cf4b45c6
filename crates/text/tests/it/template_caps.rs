//! What published chat templates support, and conversations in the form that they support.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail")]

use expect_test::expect;
use jiff::civil::DateTime;
use omnibus_testing::reference::{TEMPLATES, found};
use omnibus_text::{Adapted, ChatTemplate, GenerationPrompt, RenderInput, TemplateCaps, Tool, ToolPrompt};
use serde_json::{Map, Value, json};

use crate::openai;

const SPECIAL: &[(&str, &str)] = &[("bos_token", "<s>"), ("eos_token", "</s>")];

fn special() -> Vec<(String, String)> {
    SPECIAL.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// The samples, and the templates of published models if they are there.
fn templates() -> Vec<(String, ChatTemplate)> {
    let templates = found(TEMPLATES).flat_map(|found| {
        let files = found.files(".jinja");
        found.assert_count(files.len(), 70);
        files
    });
    let named = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, ChatTemplate::new(&std::fs::read_to_string(path).unwrap()).unwrap())
    };
    templates.map(named).collect()
}

fn tools() -> Vec<Tool> {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string", "description": "Which."}},
        "required": ["path"]});
    vec![Tool::new("read_file", Some("Reads.".into()), parameters)]
}

fn adapted(template: &ChatTemplate, messages: &Value, tools: Vec<Tool>) -> Adapted {
    TemplateCaps::of(template, &special()).adapt(openai::messages(messages), tools, ToolPrompt::Json)
}

fn rendered(template: &ChatTemplate, adapted: &Adapted) -> Result<String, omnibus_text::Error> {
    template.render(&RenderInput {
        messages: &adapted.messages,
        tools: Tool::shown_by_template(&adapted.tools).as_ref(),
        documents: None,
        generation_prompt: GenerationPrompt::Add,
        reasoning_field: template.reasoning_field(),
        special_tokens: &special(),
        kwargs: &Map::new(),
        now: DateTime::ZERO,
    })
}

/// An agent's conversation: system messages anywhere, neighbours of one role, calls without content, a text behind a
/// result, ids of another provider.
fn agent() -> Value {
    json!([
        {"role": "system", "content": "SYSTEM-ONE"},
        {"role": "system", "content": "SYSTEM-TWO"},
        {"role": "user", "content": "USER-ONE"},
        {"role": "user", "content": "USER-TWO"},
        {"role": "system", "content": "SYSTEM-LATER"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "toolu_0123456789abcdef", "type": "function",
            "function": {"name": "read_file", "arguments": {"path": "PATH-ONE"}}}]},
        {"role": "tool", "tool_call_id": "toolu_0123456789abcdef", "content": "RESULT-ONE"},
        {"role": "user", "content": "USER-THREE"},
    ])
}

/// Templates that fail in jinja2's sandbox as well, or that need a variable of their own.
const REFUSING: &[&str] = &["Kimi-K2-Instruct", "Kimi-K2-Thinking", "fireworks-ai-llama-3-firefunction-v2"];
/// A template that shows the system message in the user message that ends the conversation, or not at all.
const SYSTEM_AT_THE_END: &str = "mistralai-Mistral-Nemo-Instruct-2407";

#[test]
fn every_published_template_takes_an_agents_conversation() {
    let templates = templates();
    let mut failed = Vec::new();
    for (name, template) in &templates {
        let adapted = adapted(template, &agent(), tools());
        let texts = [
            "SYSTEM-ONE",
            "SYSTEM-TWO",
            "USER-ONE",
            "USER-TWO",
            "SYSTEM-LATER",
            "PATH-ONE",
            "RESULT-ONE",
            "USER-THREE",
            "read_file",
        ];
        match rendered(template, &adapted) {
            Err(_) if REFUSING.contains(&name.as_str()) => {}
            Err(error) => failed.push(format!("{name}: {error}")),
            Ok(text) => {
                let mut missing: Vec<_> = texts.iter().filter(|part| !text.contains(**part)).collect();
                if name == SYSTEM_AT_THE_END {
                    missing.retain(|part| !part.starts_with("SYSTEM"));
                }
                if !missing.is_empty() {
                    failed.push(format!("{name}: without {missing:?}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), templates.len(), failed.join("\n"));
}

#[test]
fn a_conversation_that_grew_has_the_same_beginning() {
    let templates = templates();
    let all = agent();
    let all = all.as_array().unwrap();
    let mut failed = Vec::new();
    for (name, template) in &templates {
        // The first turn ends with a system message, as Claude Code sends it; the second has the call and its result.
        let turns = [&all[..5], &all[..7]].map(|messages| {
            let adapted = adapted(template, &json!(messages), tools());
            adapted.messages
        });
        if !turns[1].starts_with(&turns[0]) {
            failed.push(name.clone());
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_template_without_tools_gets_them_in_the_system_prompt() {
    let source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}";
    let template = ChatTemplate::new(source).unwrap();
    let adapted = adapted(&template, &agent(), tools());
    assert_eq!(Tool::shown_by_template(&adapted.tools), None);
    assert_eq!(adapted.tools[0].name, "read_file");
    expect![[r#"
        [system]SYSTEM-ONE

        SYSTEM-TWO

        These tools can be called, each with its parameters as a JSON schema:
        {"name":"read_file","description":"Reads.","parameters":{"type":"object","properties":{"path":{"type":"string","description":"Which."}},"required":["path"]}}

        To call a tool, write exactly this, and nothing after it:
        <tool_call>{"name": "NAME", "arguments": {"PARAMETER": VALUE}}</tool_call>
        The result comes in the next message. Answer in plain text when no tool is needed.
        [user]USER-ONE

        USER-TWO
        [system]SYSTEM-LATER
        [assistant]<tool_call>{"name": "read_file", "arguments": {"path":"PATH-ONE"}}</tool_call>
        [user]<tool_response>
        RESULT-ONE
        </tool_response>

        USER-THREE
    "#]]
    .assert_eq(&rendered(&template, &adapted).unwrap());
}
