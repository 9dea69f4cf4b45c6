//! Chat templates: what a conversation defines, which of a model's templates is used, and its errors.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};

use expect_test::{Expect, expect};
use jiff::civil::{DateTime, date};
use omnibus_text::{ChatTemplate, Error, GenerationPrompt, Limits, RenderInput, TemplateName};
use serde_json::{Map, Value, json};

use crate::openai;

fn now() -> DateTime {
    date(2026, 3, 9).at(7, 5, 2, 0)
}

fn render_with(template: &ChatTemplate, kwargs: &Map<String, Value>) -> Result<String, Error> {
    let mut kwargs = kwargs.clone();
    let messages = kwargs.remove("messages").unwrap_or(json!([{"role": "user", "content": "Hi"}]));
    let messages = openai::messages(&messages);
    template.render(&RenderInput {
        messages: &messages,
        tools: None,
        documents: None,
        generation_prompt: GenerationPrompt::Add,
        reasoning_field: "reasoning_content",
        special_tokens: &[("bos_token".to_owned(), "<s>".to_owned())],
        kwargs: &kwargs,
        now: now(),
    })
}

fn render(source: &str) -> Result<String, Error> {
    render_with(&ChatTemplate::new(source)?, &Map::new())
}

fn check(source: &str, expected: Expect) {
    expected.assert_eq(&render(source).unwrap_or_else(|error| format!("error: {error}")));
}

#[test]
fn a_template_renders_a_conversation() {
    check(
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}",
        expect!["<s><user>Hi<bot>"],
    );
}

#[test]
fn raise_exception_is_an_error_with_its_message() {
    let error = render("{{ raise_exception('Roles must alternate!') }}").unwrap_err();
    assert_eq!(error, Error::TemplateRaised { message: "Roles must alternate!".to_owned() });
    assert_eq!(error.to_string(), "Roles must alternate!");
}

#[test]
fn errors_name_the_line() {
    check(
        "a\n{{ messages.x.y }}",
        expect!["error: the chat template failed in line 2: 'list object' has no attribute 'x'"],
    );
    check(
        "a\n\n{% for %}",
        expect!["error: chat template 'default', line 3: expected a name, found the end of the tag"],
    );
    check(
        "{% include 'secrets' %}",
        expect![
            "error: chat template 'default', line 1: 'include' needs another file, and a chat template has only itself"
        ],
    );
    check(
        "{{ x | shout }}",
        expect!["error: the chat template failed in line 1: No filter named 'shout' found."],
    );
    check(
        "{{ messages.append(1) }}",
        expect![
            "error: the chat template failed in line 1: access to attribute 'append' of 'list' object is unsafe."
        ],
    );
}

#[test]
fn kwargs_cannot_replace_reserved_names() {
    let kwargs = json!({
        "bos_token": "!", "eos_token": "!", "tools": "!", "documents": "!", "add_generation_prompt": "!",
        "raise_exception": "!", "enable_thinking": false,
    });
    let template = ChatTemplate::new(
        "{{ bos_token }}{{ eos_token }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ raise_exception is callable }}{{ enable_thinking }}",
    );
    expect!["<s>NoneNoneTrueTrueFalse"]
        .assert_eq(&render_with(&template.unwrap(), kwargs.as_object().unwrap()).unwrap());
}

#[test]
fn strftime_now_formats_the_given_time() {
    check("{{ strftime_now('%d %b %Y') }}", expect!["09 Mar 2026"]);
    check(
        "{{ strftime_now('%Q') }}",
        expect![
            "error: the chat template failed in line 1: strftime_now: strftime formatting failed: %Q failed: requires IANA time zone identifier or time zone offset, but neither were present"
        ],
    );
}

/// A folder of a test, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Folder {
        let path = std::env::temp_dir().join(format!("omnibus-templates-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("additional_chat_templates")).unwrap();
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn in_folder(name: &str, files: &[(&str, &str)]) -> Result<Option<ChatTemplate>, Error> {
    ChatTemplate::from_dir(&Folder::new(name, files).0)
}

fn names(template: &ChatTemplate) -> Vec<String> {
    template.names().map(ToString::to_string).collect()
}

#[test]
fn a_template_file_overrides_tokenizer_config() {
    let files =
        [("chat_template.jinja", "file"), ("tokenizer_config.json", r#"{"chat_template": "config"}"#)];
    let template = in_folder("file", &files).unwrap().unwrap();
    assert_eq!(template.source(false), "file");
    let template = in_folder("config", &files[1..]).unwrap().unwrap();
    assert_eq!(template.source(false), "config");
}

#[test]
fn from_dir_without_a_template_is_none() {
    assert!(in_folder("without", &[("tokenizer_config.json", "{}")]).unwrap().is_none());
}

#[test]
fn tools_select_the_tool_use_template() {
    let config = r#"{"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "rag"}]}"#;
    let template = in_folder("named", &[("tokenizer_config.json", config)]).unwrap().unwrap();
    assert_eq!(names(&template), ["default", "tool_use", "rag"]);
    assert_eq!((template.source(false), template.source(true)), ("plain", "tools"));
    let kwargs = Map::new();
    let input = RenderInput {
        messages: &[],
        tools: None,
        documents: None,
        generation_prompt: GenerationPrompt::Omit,
        reasoning_field: "reasoning_content",
        special_tokens: &[],
        kwargs: &kwargs,
        now: now(),
    };
    assert_eq!(template.render(&input).unwrap(), "plain");
    let tools = json!([]);
    assert_eq!(template.render(&RenderInput { tools: Some(&tools), ..input.clone() }).unwrap(), "tools");
    assert_eq!(template.render_named(&TemplateName::from("rag"), &input).unwrap().unwrap(), "rag");
    assert!(template.render_named(&TemplateName::from("other"), &input).is_none());
}

#[test]
fn additional_templates_are_named_by_file() {
    let files = [("chat_template.jinja", "plain"), ("additional_chat_templates/tool_use.jinja", "tools")];
    let template = in_folder("additional", &files).unwrap().unwrap();
    assert_eq!(names(&template), ["default", "tool_use"]);
}

#[test]
fn an_invalid_chat_template_field_names_its_file() {
    let error = in_folder("broken", &[("tokenizer_config.json", r#"{"chat_template": 3}"#)]).unwrap_err();
    assert!(matches!(&error, Error::File { path, .. } if path.ends_with("tokenizer_config.json")), "{error}");
}

#[test]
fn a_deeply_nested_input_exceeds_a_limit() {
    let mut documents = Value::Null;
    for _ in 0..100_000 {
        documents = Value::Array(vec![documents]);
    }
    let template = ChatTemplate::new("{{ documents }}").unwrap();
    let rendered = template.render(&RenderInput {
        messages: &[],
        tools: None,
        documents: Some(&documents),
        generation_prompt: GenerationPrompt::Add,
        reasoning_field: "reasoning_content",
        special_tokens: &[],
        kwargs: &Map::new(),
        now: now(),
    });
    assert!(matches!(rendered, Err(Error::TemplateLimit { .. })));
    // Dropping it would exhaust this test's own stack.
    std::mem::forget(documents);
}

#[test]
fn a_long_conversation_raises_the_limits() {
    let message = json!({"role": "user", "content": "word ".repeat(2_000)});
    let messages: Vec<Value> = std::iter::repeat_n(message, 2_000).collect();
    let kwargs = json!({ "messages": messages });
    let template =
        ChatTemplate::new("{% for m in messages %}{{ m.content | trim | replace('w', 'W') }}{% endfor %}");
    let text = render_with(&template.unwrap(), kwargs.as_object().unwrap()).unwrap();
    assert_eq!(text.len(), 2_000 * (5 * 2_000 - 1));
}

#[test]
fn limits_can_be_set() {
    let limits = Limits { output_bytes: 100, ..Limits::default() };
    let template = ChatTemplate::new("{{ 'x' * 10000 }}").unwrap().with_limits(limits);
    assert!(matches!(render_with(&template, &Map::new()), Err(Error::TemplateLimit { what: "output", .. })));
}

#[test]
fn from_dir_without_a_directory_is_none() {
    assert!(ChatTemplate::from_dir(Path::new("/nonexistent")).unwrap().is_none());
}
