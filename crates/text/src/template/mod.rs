//! Chat templates: the Jinja of Hugging Face's models, rendered as Python's jinja2 renders it inside transformers.
//!
//! The interpreter is ours because a template comes with a model that anybody can publish: it has to answer
//! within stated limits of steps, memory, output and stack ([`Limits`]), which no engine at hand can promise.
//!
//! Invariants: a rendering depends on its input alone (the date is part of it); it reads no file; it ends in a
//! text or an error. A compiled template is shared between threads.

mod access;
mod arguments;
mod ast;
mod checks;
mod eval;
mod filters;
mod format;
mod functions;
mod json;
mod lexer;
mod meter;
mod methods;
mod number;
mod parser;
mod source;
mod value;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use jiff::civil::DateTime;

pub use self::meter::Limits;
pub use self::source::TemplateName;

use self::ast::{Name, Statement};
use self::eval::Evaluator;
use self::meter::{Fault, Meter};
use self::value::Value;
use crate::Error;

/// Names of a rendering that `kwargs` may not set.
const RESERVED: &[&str] = &["messages", "tools", "documents", "add_generation_prompt"];

/// A larger template is refused: the largest published ones have 20 kB.
const MAX_SOURCE_BYTES: usize = 1 << 20;

/// Whether the prompt ends with the words that make the model answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// It does, as before a completion.
    Add,
    /// It ends with the last message.
    Omit,
}

/// What a template is rendered with.
#[derive(Debug, Clone)]
pub struct RenderInput<'a> {
    /// The conversation: a list of objects with `role` and `content`.
    pub messages: &'a serde_json::Value,
    /// Functions the model may call, in OpenAI's shape.
    pub tools: Option<&'a serde_json::Value>,
    /// Documents to answer from.
    pub documents: Option<&'a serde_json::Value>,
    /// Whether the model's turn is opened.
    pub generation_prompt: GenerationPrompt,
    /// The special tokens by their names in `tokenizer_config.json`, as `bos_token`.
    /// [`crate::Tokenizer::special_tokens`] has them.
    pub special_tokens: &'a [(String, String)],
    /// Further names, as `enable_thinking`. They cannot replace those above.
    pub kwargs: &'a serde_json::Map<String, serde_json::Value>,
    /// What `strftime_now` shows: the caller's local time.
    pub now: DateTime,
}

/// The chat template of one model, or several with names.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    templates: Vec<(TemplateName, Arc<Compiled>)>,
    limits: Limits,
}

#[derive(Debug)]
struct Compiled {
    source: String,
    body: Vec<Statement>,
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
        let mut templates = Vec::new();
        for (name, source) in sources {
            if source.len() > MAX_SOURCE_BYTES {
                let message = format!("it is larger than {} kB", MAX_SOURCE_BYTES >> 10);
                return Err(Error::TemplateSyntax { name: name.to_string(), line: 1, message });
            }
            let body = parser::parse(&source).map_err(|error| Error::TemplateSyntax {
                name: name.to_string(),
                line: error.line,
                message: error.message,
            })?;
            templates.push((name, Arc::new(Compiled { source, body })));
        }
        Ok(ChatTemplate { templates, limits: Limits::default() })
    }

    /// The same templates under other limits.
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
        self.choose(has_tools).map_or("", |compiled| &compiled.source)
    }

    /// `tool_use` when there are tools and it exists, else the default, else the only one.
    fn choose(&self, has_tools: bool) -> Option<&Compiled> {
        let find = |wanted: &TemplateName| self.templates.iter().find(|(name, _)| name == wanted);
        let tool_use = if has_tools { find(&TemplateName::ToolUse) } else { None };
        tool_use
            .or_else(|| find(&TemplateName::Default))
            .or(self.templates.first())
            .map(|(_, compiled)| &**compiled)
    }

    /// The prompt of a conversation.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, Error> {
        let has_tools = input.tools.is_some_and(|tools| !tools.is_null());
        match self.choose(has_tools) {
            Some(compiled) => compiled.render(input, &self.limits),
            None => Ok(String::new()),
        }
    }

    /// The prompt by the template called `name`, as `rag`. None if there is none of that name.
    pub fn render_named(
        &self,
        name: &TemplateName,
        input: &RenderInput<'_>,
    ) -> Option<Result<String, Error>> {
        let (_, compiled) = self.templates.iter().find(|(found, _)| found == name)?;
        Some(compiled.render(input, &self.limits))
    }
}

impl Compiled {
    fn render(&self, input: &RenderInput<'_>, limits: &Limits) -> Result<String, Error> {
        let limits = limits.for_input(input_bytes(input));
        let meter = Meter::new(&limits);
        let at_start = |fault| to_error(1, fault);
        let names = names(input, &meter).map_err(at_start)?;
        let evaluator = Evaluator::new(meter, &limits, names, input.now).map_err(at_start)?;
        evaluator.render(&self.body).map_err(|failure| to_error(failure.line, failure.fault))
    }
}

fn to_error(line: u32, fault: Fault) -> Error {
    match fault {
        Fault::Raised(message) => Error::TemplateRaised { message },
        Fault::Failed(message) => Error::TemplateFailed { line, message },
        Fault::Limit(what) => Error::TemplateLimit { line, what },
    }
}

fn names(input: &RenderInput<'_>, meter: &Meter) -> Result<HashMap<Name, Value>, Fault> {
    let mut names: HashMap<Name, Value> = HashMap::new();
    for (name, value) in input.kwargs {
        names.insert(Arc::from(name.as_str()), meter.json(value)?);
    }
    for (name, text) in input.special_tokens {
        names.insert(Arc::from(name.as_str()), Value::literal(text));
    }
    let optional =
        |value: Option<&serde_json::Value>| value.map_or(Ok(Value::None), |value| meter.json(value));
    let generation_prompt = Value::Bool(input.generation_prompt == GenerationPrompt::Add);
    let own =
        [meter.json(input.messages)?, optional(input.tools)?, optional(input.documents)?, generation_prompt];
    for (name, value) in RESERVED.iter().zip(own) {
        names.insert(Arc::from(*name), value);
    }
    // Functions of the environment are no names of a conversation either.
    for name in ["raise_exception", "strftime_now"] {
        names.remove(name);
    }
    // A special token that the model lacks stays undefined, as in transformers.
    for name in source::SPECIAL_TOKENS {
        if !input.special_tokens.iter().any(|(given, _)| given == name) {
            names.remove(*name);
        }
    }
    Ok(names)
}

/// About how many bytes a rendering is given. No recursion: nothing has bounded the depth yet.
fn input_bytes(input: &RenderInput<'_>) -> usize {
    let mut waiting: Vec<&serde_json::Value> = vec![input.messages];
    waiting.extend(input.tools);
    waiting.extend(input.documents);
    waiting.extend(input.kwargs.values());
    let mut bytes = 0;
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
