//! `thinking` of chat completions, as DeepSeek's, Z.ai's and Moonshot's clients send it.

use super::chat::Reasoning;
use super::fields::{Field, Fields, harmless, honoured};
use super::generation::TOKENS_MAX;
use crate::error::ApiError;

/// Fields of `thinking`.
pub const THINKING: &[Field] = &[
    honoured("type", "`enabled`, `adaptive`, `auto` or `disabled`"),
    honoured("budget_tokens", "another name of `thinking_token_budget`"),
    harmless("clear_thinking", "the chat template decides which earlier reasoning it shows"),
    harmless("keep", "the chat template decides which earlier reasoning it shows"),
];

/// Takes `thinking`. Sets what other fields have not set. Returns the budget.
pub fn read(fields: &mut Fields, reasoning: &mut Reasoning) -> Result<Option<usize>, ApiError> {
    let Some(mut thinking) = fields.nested("thinking", THINKING)? else { return Ok(None) };
    let kind = thinking.text("type")?;
    let enabled = match thinking.required("type", kind)?.as_str() {
        "enabled" => Some(true),
        "disabled" => Some(false),
        "adaptive" | "auto" => None,
        other => {
            let at = thinking.at("type");
            let message = format!("`{at}` must be enabled, adaptive, auto or disabled, not `{other}`");
            return Err(ApiError::invalid(&at, message));
        }
    };
    reasoning.enabled = reasoning.enabled.or(enabled);
    thinking.count("budget_tokens", (0, TOKENS_MAX))
}
