//! What a chat template supports, found by rendering small conversations with it.
//!
//! Invariant: depends on the template's source alone. A conversation that the template refuses or that does not show
//! a text is unsupported; nothing here fails.

use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

use super::{ChatTemplate, GenerationPrompt, RenderInput};
use crate::message::{ContentPart, Message, Role, ToolArguments, ToolCall, ToolResult};

/// What a chat template supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateCaps {
    /// Where it shows system messages.
    pub system: SystemMessages,
    /// Whether it shows the definitions of tools.
    pub tools: Support,
    /// Whether it shows earlier calls.
    pub calls: Support,
    /// How it takes the arguments of a call.
    pub arguments: ArgumentsAs,
    /// The content of a message that has only calls.
    pub empty_content: EmptyContent,
    /// Which ids of calls it accepts.
    pub call_ids: CallIds,
    /// Whether a user message may follow the result of a tool.
    pub user_after_tool: Support,
}

/// Whether a template does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It does.
    Yes,
    /// It refuses it or leaves it out.
    No,
}

/// Where a template shows system messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemMessages {
    /// Anywhere in the conversation.
    Anywhere,
    /// Only one, at the start.
    First,
    /// Nowhere.
    Nowhere,
}

/// How a template takes the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentsAs {
    /// As an object.
    Object,
    /// As JSON text.
    Text,
}

/// The content of a message that has only calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyContent {
    /// None.
    Null,
    /// An empty string.
    Text,
}

/// Which ids of calls a template accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallIds {
    /// Any text.
    Any,
    /// Nine letters or digits, as Mistral's.
    Nine,
}

const SYSTEM: &str = "Probe-System";
const LATER: &str = "Probe-Later";
const USER: &str = "Probe-User";
const TOOL: &str = "probe_tool";
const KEY: &str = "probe_key";
const VALUE: &str = "Probe-Value";
const RESULT: &str = "Probe-Result";

impl TemplateCaps {
    /// What the template supports.
    pub fn of(template: &ChatTemplate, special_tokens: &[(String, String)]) -> Self {
        let probe = Probe { template, special_tokens };
        let found = probe.call();
        let call = found.unwrap_or(CallForm::DEFAULT);
        Self {
            system: probe.system(),
            tools: support(probe.shows(&[user()], Some(&tools()), &[TOOL])),
            calls: support(found.is_some()),
            arguments: call.arguments,
            empty_content: call.empty_content,
            call_ids: call.call_ids,
            user_after_tool: support(probe.shows(
                &[user(), call.message(), call.result(), Message::new(Role::User, LATER)],
                Some(&tools()),
                &[RESULT, LATER],
            )),
        }
    }

    /// Whether the template shows the definitions of tools.
    pub fn shows_tools(&self) -> bool {
        self.tools == Support::Yes
    }
}

fn support(is_supported: bool) -> Support {
    if is_supported { Support::Yes } else { Support::No }
}

fn user() -> Message {
    Message::new(Role::User, USER)
}

fn tools() -> Value {
    let parameters =
        json!({"type": "object", "properties": {KEY: {"type": "string", "description": "A text."}}});
    let function = json!({"name": TOOL, "description": "A tool.", "parameters": parameters});
    json!([{"type": "function", "function": function}])
}

/// A way to write a call in a conversation.
#[derive(Debug, Clone, Copy)]
struct CallForm {
    arguments: ArgumentsAs,
    empty_content: EmptyContent,
    call_ids: CallIds,
}

impl CallForm {
    const DEFAULT: Self =
        Self { arguments: ArgumentsAs::Object, empty_content: EmptyContent::Text, call_ids: CallIds::Any };

    fn id(self) -> String {
        match self.call_ids {
            CallIds::Any => "call_0123456789".to_owned(),
            CallIds::Nine => "abcdef123".to_owned(),
        }
    }

    fn message(self) -> Message {
        let json = json!({KEY: VALUE}).to_string();
        let arguments = match self.arguments {
            ArgumentsAs::Object => ToolArguments::Json(json),
            ArgumentsAs::Text => ToolArguments::Text(json),
        };
        let call = ContentPart::ToolCall(ToolCall { id: self.id(), name: TOOL.to_owned(), arguments });
        let content = match self.empty_content {
            EmptyContent::Null => vec![call],
            EmptyContent::Text => vec![ContentPart::Text(String::new()), call],
        };
        Message { role: Role::Assistant, name: None, content }
    }

    fn result(self) -> Message {
        let result = ToolResult { call_id: self.id(), text: RESULT.to_owned() };
        Message {
            role: Role::Tool,
            name: Some(TOOL.to_owned()),
            content: vec![ContentPart::ToolResult(result)],
        }
    }
}

struct Probe<'a> {
    template: &'a ChatTemplate,
    special_tokens: &'a [(String, String)],
}

impl Probe<'_> {
    /// The rendering, if the template takes the conversation.
    fn render(&self, messages: &[Message], tools: Option<&Value>) -> Option<String> {
        let input = RenderInput {
            messages,
            tools,
            documents: None,
            generation_prompt: GenerationPrompt::Add,
            reasoning_field: self.template.reasoning_field(),
            special_tokens: self.special_tokens,
            kwargs: &Map::new(),
            now: DateTime::ZERO,
        };
        self.template.render(&input).ok()
    }

    /// Whether the rendering has all texts, in this order.
    fn shows(&self, messages: &[Message], tools: Option<&Value>, texts: &[&str]) -> bool {
        let Some(rendered) = self.render(messages, tools) else { return false };
        let mut rest = rendered.as_str();
        texts.iter().all(|text| match rest.split_once(text) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    }

    fn system(&self) -> SystemMessages {
        let first = Message::new(Role::System, SYSTEM);
        let later = Message::new(Role::System, LATER);
        if self.shows(&[first.clone(), user(), later], None, &[SYSTEM, USER, LATER]) {
            SystemMessages::Anywhere
        } else if self.shows(&[first, user()], None, &[SYSTEM, USER]) {
            SystemMessages::First
        } else {
            SystemMessages::Nowhere
        }
    }

    /// The first way to write a call that the template shows completely.
    fn call(&self) -> Option<CallForm> {
        let mut forms = Vec::new();
        for call_ids in [CallIds::Any, CallIds::Nine] {
            for empty_content in [EmptyContent::Null, EmptyContent::Text] {
                for arguments in [ArgumentsAs::Object, ArgumentsAs::Text] {
                    forms.push(CallForm { arguments, empty_content, call_ids });
                }
            }
        }
        forms.into_iter().find(|form| self.shows_call(*form))
    }

    fn shows_call(&self, form: CallForm) -> bool {
        let messages = [user(), form.message(), form.result()];
        let Some(rendered) = self.render(&messages, Some(&tools())) else { return false };
        let Some((_, answer)) = rendered.split_once(USER) else { return false };
        // An object that is joined to a text shows as Python's notation.
        let is_python = answer.contains(&format!("{{'{KEY}'"));
        let is_none = answer.contains("None");
        !is_python && !is_none && [TOOL, KEY, VALUE, RESULT].iter().all(|text| answer.contains(text))
    }
}
