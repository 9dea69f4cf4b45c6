//! Texts that are pooled: tokenized, then run as requests that generate nothing.

mod prepare;
mod run;
mod token_form;

use std::sync::Arc;

use omnibus_pooler::{Pooler, Rows};

use super::LoadedModel;
use crate::error::Failure;
use crate::front::pooling::PoolingRequest;
use prepare::PoolingModel;
pub use run::PoolingRun;

/// Most numbers of the results of one request.
const NUMBERS_MAX: usize = 1 << 25;

impl LoadedModel {
    /// Tokenizes texts, to be pooled by a model. Takes up to seconds of CPU for many.
    pub(crate) fn pool(self: Arc<Self>, pooling: PoolingRequest) -> Result<PoolingRun, Failure> {
        self.check_open()?;
        let model = self.resolve(pooling.request.model.as_deref())?;
        let Some(width) = self.details().map(|details| details.hidden_size) else {
            return Err(Failure::unavailable("the model is not loaded"));
        };
        let vocab = model.limits.vocab_size;
        self.pooler().check(width).map_err(|error| Failure::Engine { message: error.to_string() })?;
        if !self.pooler().gives(pooling.output) {
            return Err(Failure::bad_request("task", "this model does not give that for each token"));
        }
        if self.pooler().rows(pooling.output) == Rows::Vocabulary && !model.text.weighs_vocabulary {
            let message = "the checkpoint has no head of a masked language model, and its modules need one";
            return Err(Failure::Engine { message: message.to_owned() });
        }
        let most = NUMBERS_MAX / self.pooler().width(width, vocab).max(1);
        if pooling.inputs.len() > most {
            let message = format!(
                "{} texts are too many for one request: this model takes {most} at most",
                pooling.inputs.len()
            );
            return Err(Failure::bad_request(pooling.field, message));
        }
        let limit = model.limits.max_model_len;
        let model = PoolingModel { text: model.text, pooler: self.pooler(), limit, vocab };
        model.prepare(pooling, Arc::clone(&self), width)
    }

    /// What becomes of hidden states.
    pub(crate) fn pooler(&self) -> &Pooler {
        self.text.pooler()
    }
}
