//! `thinking` of chat completions, as DeepSeek's, Z.ai's and Moonshot's clients send it.

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

/// What `thinking` says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Thinking {
    /// Whether to reason. `None` leaves it to the chat template.
    pub enabled: Option<bool>,
    /// Most tokens of it.
    pub budget_tokens: Option<usize>,
}

/// Takes `thinking`.
pub fn read(fields: &mut Fields) -> Result<Thinking, ApiError> {
    let Some(mut thinking) = fields.nested("thinking", THINKING)? else { return Ok(Thinking::default()) };
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
    Ok(Thinking { enabled, budget_tokens: thinking.count("budget_tokens", (0, TOKENS_MAX))? })
}
