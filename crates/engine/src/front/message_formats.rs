//! How a model writes messages: its formats of reasoning and tool calls, and what its chat template supports.

use omnibus_text::{
    Adapted, ChatTemplate, OutputParser, ReasoningFormat, SkipSpecial, TemplateCaps, Tokenizer,
    ToolCallFormat, ToolPrompt, ToolSchemas,
};

use crate::error::StartError;
use crate::request::{Chat, OutputMode, Request};
use crate::settings::Settings;

/// The name that switches a format off.
const NONE: &str = "none";
/// The format of the tool prompt that writes a call on a line of its own.
const LINE: &str = "tool-call-text";
/// The format of the other one.
const JSON: &str = "json";
/// Enough tokens of a prompt's end to hold any opening of a format.
const PROMPT_END_TOKENS: usize = 64;

/// How a model writes messages.
pub(super) struct MessageFormats {
    tools: Option<&'static ToolCallFormat>,
    reasoning: Option<&'static ReasoningFormat>,
    /// `None` without a chat template.
    caps: Option<TemplateCaps>,
    notation: ToolPrompt,
}

impl MessageFormats {
    /// The formats that the settings name, or else those of the model.
    pub(super) fn of(
        template: Option<&ChatTemplate>,
        tokenizer: &Tokenizer,
        settings: &Settings,
    ) -> Result<Self, StartError> {
        let source = template.map_or("", |template| template.source(true));
        let tokens: Vec<String> =
            tokenizer.special_ids().iter().filter_map(|id| tokenizer.id_to_token(*id)).collect();
        let tokens = || tokens.iter().map(String::as_str);
        let caps = template.map(|template| TemplateCaps::of(template, tokenizer.special_tokens()));
        let shows_tools = caps.is_some_and(|caps| caps.shows_tools());
        let tools = match settings.tool_call_format.as_deref() {
            Some(NONE) => None,
            Some(name) => Some(ToolCallFormat::named(name).ok_or_else(|| unknown("tool call", name))?),
            None if shows_tools => {
                ToolCallFormat::of_model(source, tokens()).or_else(|| ToolCallFormat::named(JSON))
            }
            None => ToolCallFormat::named(JSON),
        };
        let reasoning = match settings.reasoning_format.as_deref() {
            Some(NONE) => None,
            Some(name) => Some(ReasoningFormat::named(name).ok_or_else(|| unknown("reasoning", name))?),
            None => ReasoningFormat::of_model(source, tokens()),
        };
        let notation =
            if tools.is_some_and(|format| format.name == LINE) { ToolPrompt::Line } else { ToolPrompt::Json };
        Ok(Self { tools, reasoning, caps, notation })
    }

    /// The model's format of tool calls.
    pub(super) fn tools(&self) -> Option<&'static ToolCallFormat> {
        self.tools
    }

    /// The model's format of reasoning.
    pub(super) fn reasoning(&self) -> Option<&'static ReasoningFormat> {
        self.reasoning
    }

    /// The conversation in the form that the chat template supports.
    pub(super) fn adapt(&self, chat: Chat) -> Chat {
        let Some(caps) = &self.caps else { return chat };
        let Adapted { messages, tools } = caps.adapt(chat.messages, chat.tools, self.notation);
        Chat { messages, tools, ..chat }
    }

    /// The parser of a message after these prompt tokens. `None` if all text is the answer.
    pub(super) fn parser(
        &self,
        request: &Request,
        tokenizer: &Tokenizer,
        prompt: &[u32],
    ) -> Option<OutputParser> {
        let OutputMode::Message { calls } = request.output else { return None };
        let schemas = calls.map(|_| ToolSchemas::of(request.tools()));
        let tools = self.tools.zip(schemas.as_ref());
        if tools.is_none() && self.reasoning.is_none() {
            return None;
        }
        let end = prompt.get(prompt.len().saturating_sub(PROMPT_END_TOKENS)..).unwrap_or_default();
        Some(OutputParser::new(&tokenizer.decode(end, SkipSpecial::No), self.reasoning, tools))
    }
}

impl MessageFormats {
    /// The text that ends reasoning.
    pub(super) fn reasoning_end(&self) -> Option<&'static str> {
        self.reasoning.map(|format| format.closing)
    }
}

fn unknown(kind: &str, name: &str) -> StartError {
    StartError::new(format!(
        "there is no {kind} format `{name}`; `omnibus models --formats` lists them, and `none` switches it off"
    ))
}
