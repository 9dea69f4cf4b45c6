//! Chat templates: from a conversation to a model's prompt, as transformers renders it.
//!
//! The interpreter is `omnibus_jinja`; this module gives it what transformers gives to jinja2: the messages, tools and
//! documents, the special tokens, the caller's keyword arguments, and `strftime_now`.
//!
//! Invariants: a rendering depends on its input alone (the date is part of it); it reads no file; it ends in a
//! text or an error. A compiled template is shared between threads.

mod adapt;
mod caps;
mod messages;
mod source;
mod tool_prompt;

use std::path::Path;
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use omnibus_jinja::{Context, ContextValue, RenderError, Template};

pub use self::adapt::Adapted;
pub use self::caps::{ArgumentsAs, CallIds, EmptyContent, Support, SystemMessages, TemplateCaps};
pub use self::source::TemplateName;
pub use self::tool_prompt::ToolPrompt;
pub use omnibus_jinja::Limits;

use crate::error::Error;
use crate::message::Message;

/// Names of a rendering that `kwargs` may not set.
const RESERVED: &[&str] = &["messages", "tools", "documents", "add_generation_prompt"];

/// Functions of a rendering, which `kwargs` may not set either.
const FUNCTIONS: &[&str] = &["raise_exception", "strftime_now"];

/// The longest format `strftime_now` takes, and the longest date it gives, in bytes.
const MAX_DATE_FORMAT: usize = 1024;
const MAX_DATE: usize = 64 << 10;

/// Whether the prompt ends with the start of an assistant message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// It does, as for a completion.
    Add,
    /// It ends with the last message.
    Omit,
}

/// What a template is rendered with.
#[derive(Debug, Clone)]
pub struct RenderInput<'a> {
    /// The conversation.
    pub messages: &'a [Message],
    /// Functions the model may call, in OpenAI's shape.
    pub tools: Option<&'a serde_json::Value>,
    /// Documents to answer from.
    pub documents: Option<&'a serde_json::Value>,
    /// Whether the model's turn is opened.
    pub generation_prompt: GenerationPrompt,
    /// The special tokens by their names in `tokenizer_config.json`, as `bos_token`.
    /// [`crate::Tokenizer::special_tokens`] has them.
    pub special_tokens: &'a [(String, String)],
    /// The field in which messages have their reasoning, as `reasoning_content`.
    pub reasoning_field: &'a str,
    /// Further names, as `enable_thinking`. They cannot replace those above.
    pub kwargs: &'a serde_json::Map<String, serde_json::Value>,
    /// What `strftime_now` shows: the caller's local time.
    pub now: DateTime,
}

/// The chat template of one model, or several with names.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    templates: Vec<(TemplateName, Arc<Template>)>,
    limits: Limits,
}

impl ChatTemplate {
    /// Compiles one template.
    pub fn new(source: &str) -> Result<Self, Error> {
        Self::from_named([(TemplateName::Default, source.to_owned())])
    }

    /// Compiles the templates of a model directory: `chat_template.jinja` and `additional_chat_templates/*.jinja`,
    /// else `chat_template.json`, else `chat_template` in `tokenizer_config.json`. None if it has none.
    pub fn from_dir(directory: &Path) -> Result<Option<Self>, Error> {
        let sources = source::read(directory)?;
        if sources.is_empty() { Ok(None) } else { Self::from_named(sources).map(Some) }
    }

    fn from_named(sources: impl IntoIterator<Item = (TemplateName, String)>) -> Result<Self, Error> {
        let limits = Limits::default();
        let mut templates = Vec::new();
        for (name, source) in sources {
            let template =
                Template::parse(&source, &limits).map_err(|error| syntax_error(name.to_string(), error))?;
            templates.push((name, Arc::new(template)));
        }
        Ok(ChatTemplate { templates, limits })
    }

    /// These templates under other limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The names it has a template for.
    pub fn names(&self) -> impl Iterator<Item = &TemplateName> {
        self.templates.iter().map(|(name, _)| name)
    }

    /// The text of the template that [`Self::render`] uses with or without tools. Parsers of what the model
    /// writes look in here for its markers.
    pub fn source(&self, has_tools: bool) -> &str {
        self.choose(has_tools).map_or("", Template::source)
    }

    /// The field in which the template expects the reasoning of messages.
    pub fn reasoning_field(&self) -> &'static str {
        messages::reasoning_field(self.source(true))
    }

    /// `tool_use` when there are tools and it exists, else the default, else the only one.
    fn choose(&self, has_tools: bool) -> Option<&Template> {
        let find = |wanted: &TemplateName| self.templates.iter().find(|(name, _)| name == wanted);
        let tool_use = if has_tools { find(&TemplateName::ToolUse) } else { None };
        tool_use
            .or_else(|| find(&TemplateName::Default))
            .or(self.templates.first())
            .map(|(_, template)| &**template)
    }

    /// The prompt of a conversation.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, Error> {
        let has_tools = input.tools.is_some_and(|tools| !tools.is_null());
        match self.choose(has_tools) {
            Some(template) => render(template, input, &self.limits),
            None => Ok(String::new()),
        }
    }

    /// The prompt by the template called `name`, as `rag`. None if there is none of that name.
    pub fn render_named(
        &self,
        name: &TemplateName,
        input: &RenderInput<'_>,
    ) -> Option<Result<String, Error>> {
        let (_, template) = self.templates.iter().find(|(found, _)| found == name)?;
        Some(render(template, input, &self.limits))
    }
}

fn render(template: &Template, input: &RenderInput<'_>, limits: &Limits) -> Result<String, Error> {
    let limits = limits.for_input(input_bytes(input));
    context(input, &limits).and_then(|context| template.render(context)).map_err(render_error)
}

fn syntax_error(name: String, error: omnibus_jinja::Error) -> Error {
    match error {
        omnibus_jinja::Error::Syntax { line, message } => Error::TemplateSyntax { name, line, message },
        other => render_error(other),
    }
}

fn render_error(error: omnibus_jinja::Error) -> Error {
    match error {
        omnibus_jinja::Error::Raised { message } => Error::TemplateRaised { message },
        omnibus_jinja::Error::Failed { line, message } => Error::TemplateFailed { line, message },
        omnibus_jinja::Error::Limit { line, what } => Error::TemplateLimit { line, what },
        other => Error::TemplateFailed { line: 1, message: other.to_string() },
    }
}

/// What transformers gives to a template.
fn context(input: &RenderInput<'_>, limits: &Limits) -> Result<Context, omnibus_jinja::Error> {
    let mut context = Context::new(limits);
    // A special token that the model lacks stays undefined, as in transformers.
    let is_free = |name: &str| {
        !RESERVED.contains(&name) && !FUNCTIONS.contains(&name) && !source::SPECIAL_TOKENS.contains(&name)
    };
    for (name, value) in input.kwargs {
        if is_free(name) {
            let value = context.json(value)?;
            context.define(name, value);
        }
    }
    for (name, text) in input.special_tokens {
        let text = context.text(text)?;
        context.define(name, text);
    }
    let messages = messages::list(&context, input.messages, input.reasoning_field)?;
    context.define("messages", messages);
    for (name, value) in [("tools", input.tools), ("documents", input.documents)] {
        let value = value.map_or(Ok(ContextValue::NONE), |value| context.json(value))?;
        context.define(name, value);
    }
    context.define("add_generation_prompt", (input.generation_prompt == GenerationPrompt::Add).into());
    let now = input.now;
    context.define_function("strftime_now", "format", move |format| strftime(format, now));
    Ok(context)
}

fn strftime(format: &str, now: DateTime) -> Result<String, RenderError> {
    if format.len() > MAX_DATE_FORMAT {
        return Err(RenderError::Limit("length of a date format"));
    }
    match strtime::format(format, now) {
        Ok(text) if text.len() <= MAX_DATE => Ok(text),
        Ok(_) => Err(RenderError::Limit("length of a date")),
        Err(error) => Err(RenderError::Failed(format!("strftime_now: {error}"))),
    }
}

/// About how many bytes a rendering is given. No recursion: nothing has bounded the depth yet.
fn input_bytes(input: &RenderInput<'_>) -> usize {
    let mut waiting: Vec<&serde_json::Value> = Vec::new();
    waiting.extend(input.tools);
    waiting.extend(input.documents);
    waiting.extend(input.kwargs.values());
    let mut bytes = messages::bytes(input.messages);
    while let Some(json) = waiting.pop() {
        bytes += 64;
        match json {
            serde_json::Value::String(text) => bytes += text.len(),
            serde_json::Value::Array(items) => waiting.extend(items),
            serde_json::Value::Object(map) => {
                bytes += map.keys().map(|key| 64 + key.len()).sum::<usize>();
                waiting.extend(map.values());
            }
            _ => {}
        }
    }
    bytes
}
