//! The chat templates of published models, and the assistant's part of what they render.

#![allow(dead_code, reason = "each test uses a part")]

use jiff::civil::date;
use omnibus_jinja::{Context, ContextValue, Error, Limits, RenderError};
use omnibus_testing::reference::{Found, TEMPLATES, found};
use serde_json::{Value, json};

/// Tokens that end a message.
const ENDS: &[&str] = &[
    "<|im_end|>",
    "<EOS>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end_of_text|>",
    "<turn|>",
    "<end_of_turn>",
    "<seed:eos>",
    "[e~[",
    "<end_of_sentence>",
    "<|end_of_msg|>",
    "<｜end▁of▁sentence｜>",
    "<SPECIAL_12>",
    "<sep>",
    "<|role_end|>",
    "</assistant>",
    "<|assistant_end|>",
    "<｜hy_eos:opensource｜>",
    "<|end|>",
    "<|eot|>",
    "<|return|>",
    "<|user|>",
    "<|observation|>",
    "<|message_sep|>",
    "<|tool_response>",
];

/// Starts of a turn, for templates that open the next one whether it is wanted or not.
const TURNS: &[&str] = &["<|START_OF_TURN_TOKEN|>", "<|start_header_id|>"];

/// Templates that write calls only where a message has no content at all.
const WITHOUT_CONTENT: &[&str] = &[
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "llama-cpp-deepseek-r1",
    "NVIDIA-Nemotron-Nano-v2",
];

/// Templates that want reasoning in another field than `reasoning_content`.
const REASONING_FIELDS: &[(&str, &str)] = &[
    ("LFM2.5-8B-A1B", "thinking"),
    ("openai-gpt-oss-120b", "thinking"),
    ("unsloth-Apriel-1.5", "thought"),
    ("upstage-Solar-Open-100B", "reasoning"),
];

/// Templates whose prompt opens reasoning that an answer in the conversation does not open.
const OPENED_BY_PROMPT: &[&str] = &["Apriel-1.6-15b-Thinker-fixed"];

/// How a template wants arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arguments {
    Object,
    Text,
}

pub struct Template {
    pub name: String,
    template: omnibus_jinja::Template,
}

/// What the assistant answers.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    pub text: &'a str,
    pub reasoning: Option<&'a str>,
    pub calls: &'a [(&'a str, Value)],
}

/// The samples, and the templates of published models if they are beside the repository.
pub fn templates() -> impl Iterator<Item = (Found, Vec<Template>)> {
    let template = |path: &std::path::PathBuf| {
        let source = std::fs::read_to_string(path).unwrap();
        Template {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            template: omnibus_jinja::Template::parse(&source, &Limits::default()).unwrap(),
        }
    };
    found(TEMPLATES).map(move |found| {
        let templates: Vec<Template> = found.files(".jinja").iter().map(template).collect();
        found.assert_count(templates.len(), 70);
        (found, templates)
    })
}

impl Template {
    pub fn source(&self) -> &str {
        self.template.source()
    }

    /// The prompt up to where the answer begins, and the answer as the template writes it.
    ///
    /// A text that the template does not write beside calls is left out.
    pub fn render_answer(
        &self,
        answer: &Answer<'_>,
        tools: Option<&Value>,
    ) -> Result<(String, String), String> {
        self.answer(answer, tools).or_else(|error| self.answer(answer, None).map_err(|_| error))
    }

    fn answer(&self, answer: &Answer<'_>, tools: Option<&Value>) -> Result<(String, String), String> {
        let user = json!({"role": "user", "content": "Question?"});
        let prompt = self.render(&json!([user]), tools, true)?;
        let with = |arguments| {
            let messages = json!([user, self.message(answer, arguments)]);
            self.render(&messages, tools, false)
        };
        let full = with(Arguments::Object).or_else(|_| with(Arguments::Text))?;
        let cut = border(&prompt, &full);
        let mut output = full.get(cut..).unwrap_or_default();
        output = output.strip_prefix("<|CHATBOT_TOKEN|>").unwrap_or(output);
        for turn in TURNS {
            output = output.split_once(turn).map_or(output, |(before, _)| before);
        }
        loop {
            let trimmed = output.trim_end();
            let Some(end) = ENDS.iter().find(|end| trimmed.ends_with(**end)) else { break };
            output = trimmed.strip_suffix(end).unwrap();
        }
        let is_opened = OPENED_BY_PROMPT.contains(&self.name.as_str())
            && answer.reasoning.is_some_and(|reasoning| output.contains(reasoning) && !reasoning.is_empty());
        let prompt = if is_opened { &prompt } else { prompt.get(..cut).unwrap_or_default() };
        Ok((prompt.to_owned(), output.to_owned()))
    }

    fn message(&self, answer: &Answer<'_>, arguments: Arguments) -> Value {
        let mut message = json!({"role": "assistant", "content": answer.text});
        if let Some(reasoning) = answer.reasoning {
            let text = answer.text;
            match self.name.as_str() {
                "Apertus-8B-Instruct" => {
                    let blocks =
                        json!([{"type": "thoughts", "text": reasoning}, {"type": "response", "text": text}]);
                    message["content"] = json!({"blocks": blocks});
                }
                "mistralai-Ministral-3-14B-Reasoning-2512" => {
                    message["content"] =
                        json!([{"type": "thinking", "thinking": reasoning}, {"type": "text", "text": text}]);
                }
                "HuggingFaceTB-SmolLM3-3B" => {
                    message["content"] = format!("<think>\n{reasoning}\n</think>\n\n{text}").into();
                }
                name => {
                    let field = REASONING_FIELDS.iter().find(|(template, _)| *template == name);
                    message[field.map_or("reasoning_content", |(_, field)| field)] = reasoning.into();
                }
            }
        }
        if answer.calls.is_empty() {
            return message;
        }
        if WITHOUT_CONTENT.contains(&self.name.as_str()) {
            message["content"] = Value::Null;
        }
        let call = |(index, (name, value)): (usize, &(&str, Value))| {
            let arguments = match arguments {
                Arguments::Object => value.clone(),
                Arguments::Text => value.to_string().into(),
            };
            let function = json!({"name": name, "arguments": arguments});
            json!({"id": format!("call0000{index}"), "type": "function", "function": function})
        };
        message["tool_calls"] = answer.calls.iter().enumerate().map(call).collect();
        message
    }

    fn render(&self, messages: &Value, tools: Option<&Value>, has_prompt: bool) -> Result<String, String> {
        self.try_render(messages, tools, has_prompt).map_err(|error| error.to_string())
    }

    fn try_render(&self, messages: &Value, tools: Option<&Value>, has_prompt: bool) -> Result<String, Error> {
        let mut context = Context::new(&Limits::default());
        let mut names = json!({
            "messages": messages, "add_generation_prompt": has_prompt, "bos_token": "<BOS>", "eos_token": "<EOS>",
            "thinking": true, "enable_thinking": true, "functions": "[]", "datetime": "2026-11-20",
        });
        if let Some(tools) = tools {
            names["tools"] = tools.clone();
        }
        for (name, value) in names.as_object().unwrap() {
            let value = context.json(value)?;
            context.define(name, value);
        }
        context.define("documents", ContextValue::NONE);
        if tools.is_none() {
            context.define("tools", ContextValue::NONE);
        }
        context.define_function("strftime_now", "format", |format| {
            let now = date(2026, 11, 20).at(9, 30, 5, 0);
            jiff::fmt::strtime::format(format, now).map_err(|error| RenderError::Failed(error.to_string()))
        });
        self.template.render(context)
    }
}

/// Where the answer begins: at the end of what both texts start with, or before a tag that they share in part.
fn border(prompt: &str, full: &str) -> usize {
    let same = prompt.char_indices().zip(full.chars()).find(|((_, a), b)| a != b);
    let at = same.map_or(prompt.len().min(full.len()), |((at, _), _)| at);
    let before = prompt.get(..at).unwrap_or_default();
    match before.rfind(['<', '[']) {
        Some(tag) if at < prompt.len() && !before[tag..].contains(['>', ']']) => tag,
        _ => at,
    }
}
