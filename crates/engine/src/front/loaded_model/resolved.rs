//! A request's model, found by the name that the request gives.

use std::sync::Arc;

use super::LoadedModel;
use crate::error::Failure;
use crate::front::adapters::AdapterUse;
use crate::front::model_text::ModelText;
use crate::info::{ModelDetails, ModelInfo};
use crate::request::{Input, Request};
use crate::settings::DEFAULT_MAX_LOGPROBS;

/// A request's model, found once by its name.
pub(super) struct Resolved<'a> {
    pub(super) text: &'a ModelText,
    pub(super) adapter: Option<Arc<AdapterUse>>,
    /// As requests are listed.
    pub(super) name: String,
    pub(super) limits: ModelLimits,
}

/// What a model takes of a prompt.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelLimits {
    /// Of its vocabulary.
    pub(super) vocab_size: usize,
    /// Kinds of each token.
    pub(super) token_types: usize,
    /// Tokens of prompt and answer together.
    pub(super) max_model_len: usize,
    /// Alternatives of a token.
    pub(super) max_logprobs: usize,
    /// Sequences in one step.
    pub(super) max_num_seqs: usize,
}

/// Most alternatives in one message of the engine's process: 8 bytes each are below what a message may have.
const MESSAGE_LOGPROBS_MAX: usize = 1 << 24;

impl ModelLimits {
    /// Checks a request's prompt against them. The tokens that it may generate.
    pub(super) fn check(self, request: &Request, prompt: &[u32]) -> Result<usize, Failure> {
        let Self { vocab_size, token_types, max_model_len, .. } = self;
        let field = match request.input {
            Input::Chat(_) => "messages",
            Input::Text(_) | Input::Tokens(_) | Input::Infill { .. } => "prompt",
        };
        if prompt.is_empty() {
            return Err(Failure::bad_request(field, "the prompt has no tokens"));
        }
        if let Some(token) = prompt.iter().find(|token| **token as usize >= vocab_size * token_types) {
            return Err(Failure::bad_request(field, format!("{token} is not a token of this model")));
        }
        let rest = max_model_len.saturating_sub(prompt.len()).max(1);
        let max_new_tokens = request.max_new_tokens.unwrap_or(rest);
        if prompt.len().saturating_add(max_new_tokens) > max_model_len {
            return Err(Failure::TooLong {
                prompt_tokens: prompt.len(),
                completion_tokens: max_new_tokens,
                limit: max_model_len,
            });
        }
        Ok(max_new_tokens)
    }
}

impl ModelLimits {
    /// Fails where more alternatives are requested than are reported, or than a message has room for.
    pub(super) fn check_logprobs(self, request: &Request, prompt: &[u32]) -> Result<(), Failure> {
        request.validate_logprobs(self.max_logprobs)?;
        for (alternatives, rows) in request.alternatives().into_iter().zip([self.max_num_seqs, prompt.len()])
        {
            let (field, count) = alternatives;
            let fit = (MESSAGE_LOGPROBS_MAX / rows.max(1)).max(DEFAULT_MAX_LOGPROBS);
            if count.min(self.vocab_size) > fit {
                let message = format!("must be at most {fit} where a step reports {rows} tokens");
                return Err(Failure::bad_request(field, message));
            }
        }
        Ok(())
    }

    /// Fails for a token that a request names and the model does not have.
    pub(super) fn check_tokens(self, request: &Request) -> Result<(), Failure> {
        let biased = request.sampling.logit_bias.keys().map(|token| ("logit_bias", *token));
        let reported = request.token_logits.iter().map(|token| ("token_logits", *token));
        let scored = request.logprob_token_ids.iter().map(|token| ("logprob_token_ids", *token));
        match biased.chain(reported).chain(scored).find(|(_, token)| *token as usize >= self.vocab_size) {
            None => Ok(()),
            Some((field, token)) => {
                Err(Failure::bad_request(field, format!("{token} is not a token of this model")))
            }
        }
    }
}

impl LoadedModel {
    /// The model, then its adapters.
    pub(crate) fn models(&self) -> Vec<ModelInfo> {
        let adapters = self.adapters.models(&self.info);
        std::iter::once(self.info.clone()).chain(adapters).collect()
    }

    /// What is known of the model.
    pub(crate) fn details(&self) -> Option<&ModelDetails> {
        self.info.details()
    }

    /// The text side of a model.
    pub(crate) fn text_of(&self, model: Option<&str>) -> Result<&ModelText, Failure> {
        self.resolve(model).map(|resolved| resolved.text)
    }

    /// What serves requests for a model: the model itself, or one of its adapters as `name` or `model:name`.
    pub(super) fn resolve(&self, model: Option<&str>) -> Result<Resolved<'_>, Failure> {
        let name_of_model = self.info.id.clone();
        let base = Resolved { text: &self.text, adapter: None, name: name_of_model, limits: self.limits };
        let Some(name) = model else { return Ok(base) };
        if self.info.names().any(|served| served == name) {
            return Ok(base);
        }
        let of_base = |base: &str| name.strip_prefix(base)?.strip_prefix(':');
        let named = std::iter::once(name).chain(self.info.names().filter_map(of_base));
        let found = named.filter_map(|name| Some((name, self.adapters.find(name)?))).next();
        let (name, adapter) = found.ok_or_else(|| Failure::unknown_model(name, &self.models()))?;
        Ok(Resolved { adapter: Some(adapter), name: name.to_owned(), ..base })
    }
}
