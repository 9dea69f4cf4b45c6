//! Lowers `POST /v1/completions`.

use omnibus_engine::{Input, Request};

use super::{Caller, GenerationBatch, generation};
use crate::wire::completions::{CompletionRequest, Echo, Prompt};

/// OpenAI's default of `max_tokens`.
pub const MAX_TOKENS_DEFAULT: usize = 16;

/// The engine requests of a completions request.
pub fn lower(wire: CompletionRequest, caller: &Caller) -> GenerationBatch {
    let CompletionRequest { generation: shared, prompts, echo, logprobs } = wire;
    let request = |prompt: Prompt| Request {
        max_new_tokens: Some(shared.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT)),
        logprobs,
        prompt_logprobs: logprobs.filter(|_| echo == Echo::Include),
        ..generation::lower(&shared, input(prompt), caller)
    };
    GenerationBatch { prompts: prompts.into_iter().map(request).collect(), n: shared.n }
}

/// The engine input of a prompt.
pub fn input(prompt: Prompt) -> Input {
    match prompt {
        Prompt::Text(text) => Input::Text(text),
        Prompt::Tokens(tokens) => Input::Tokens(tokens),
    }
}

#[cfg(test)]
mod tests;
