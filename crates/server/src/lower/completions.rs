//! Text completions.

use omnibus_engine::{Input, Request};

use super::{Caller, Plan, generation};
use crate::wire::completions::{CompletionRequest, Echo, Prompt};

/// What OpenAI generates when nobody says how much.
pub const MAX_TOKENS_DEFAULT: usize = 16;

/// A plan for the answers to each prompt.
pub fn lower(wire: CompletionRequest, caller: &Caller) -> Plan {
    let CompletionRequest { generation: shared, prompts, echo, logprobs } = wire;
    let request = |prompt: Prompt| Request {
        max_new_tokens: Some(shared.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT)),
        logprobs,
        prompt_logprobs: logprobs.filter(|_| echo == Echo::Include),
        ..generation::lower(&shared, input(prompt), caller)
    };
    Plan { prompts: prompts.into_iter().map(request).collect(), n: shared.n }
}

/// The input that a prompt is.
pub fn input(prompt: Prompt) -> Input {
    match prompt {
        Prompt::Text(text) => Input::Text(text),
        Prompt::Tokens(tokens) => Input::Tokens(tokens),
    }
}

#[cfg(test)]
mod tests;
