//! A choice's events, folded into one completion.

use omnibus_engine::{Delta, Event, FinishReason, TokenInfo};

/// The finished completion of one choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// The text outside of reasoning and tool calls.
    pub text: String,
    /// The reasoning.
    pub reasoning: String,
    /// The tool calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The prompt's tokens, when their log-probabilities were requested.
    pub prompt_tokens: Vec<TokenInfo>,
    /// The generated tokens, with log-probabilities when requested.
    pub tokens: Vec<TokenInfo>,
    /// Why the completion ended.
    pub finish_reason: Option<FinishReason>,
}

/// A tool call of the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCall {
    /// The id that the tool's result refers to.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments: JSON text, as generated.
    pub arguments: String,
}

impl Completion {
    /// Adds an event.
    pub fn fold(&mut self, event: Event) {
        match event {
            Event::Started { .. } | Event::Failed(_) => {}
            Event::Prompt(tokens) => self.prompt_tokens.extend(tokens),
            Event::Delta { delta, tokens } => {
                self.tokens.extend(tokens);
                self.fold_delta(delta);
            }
            Event::Finished { reason, .. } => self.finish_reason = Some(reason),
        }
    }

    fn fold_delta(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.text.push_str(&text),
            Delta::Reasoning(text) => self.reasoning.push_str(&text),
            Delta::ToolCallStart { id, name } => {
                self.tool_calls.push(ToolCall { id, name, arguments: String::new() });
            }
            Delta::ToolCallArguments(text) => {
                if let Some(call) = self.tool_calls.last_mut() {
                    call.arguments.push_str(&text);
                }
            }
            Delta::ToolCallEnd(_) => {}
        }
    }
}
