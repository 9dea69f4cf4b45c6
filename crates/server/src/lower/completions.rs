//! Lowers `POST /v1/completions`.

use omnibus_engine::{Input, Request};

use super::{Caller, GenerationBatch, generation};
use crate::wire::completions::{CompletionRequest, Echo, Prompt};

/// OpenAI's default of `max_tokens`.
pub const MAX_TOKENS_DEFAULT: usize = 16;

/// The engine requests of a completions request.
pub fn lower(wire: CompletionRequest, caller: &Caller) -> GenerationBatch {
    let CompletionRequest { generation: shared, prompts, echo, logprobs, logprob_token_ids, suffix, best_of } =
        wire;
    let count = best_of.unwrap_or(shared.n);
    let input = |prompt: Prompt| match (prompt, &suffix) {
        (Prompt::Text(prefix), Some(suffix)) => {
            Input::Infill { prefix, suffix: suffix.clone(), files: Vec::new() }
        }
        (prompt, _) => input(prompt),
    };
    let request = |prompt: Prompt| Request {
        max_new_tokens: Some(shared.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT)),
        // The best ones are found by them.
        logprobs: logprobs.or((count > shared.n).then_some(0)),
        logprob_token_ids: logprob_token_ids.clone(),
        prompt_logprobs: logprobs.filter(|_| echo == Echo::Include).or(shared.prompt_logprobs),
        ..generation::lower(&shared, input(prompt), caller)
    };
    GenerationBatch { prompts: prompts.into_iter().map(request).collect(), n: count }
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
