//! Texts that are pooled: tokenized, then run as requests that generate nothing.

mod prepare;
mod run;

use std::sync::Arc;

use omnibus_pooler::Pooler;

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
        self.pooler().check(width).map_err(|error| Failure::Engine { message: error.to_string() })?;
        let most = NUMBERS_MAX / self.pooler().width(width).max(1);
        if pooling.inputs.len() > most {
            let message = format!(
                "{} texts are too many for one request: this model takes {most} at most",
                pooling.inputs.len()
            );
            return Err(Failure::bad_request(pooling.field, message));
        }
        let (limit, vocab) = (model.limits.max_model_len, model.limits.vocab_size);
        let model = PoolingModel { text: model.text, pooler: self.pooler(), limit, vocab };
        model.prepare(pooling, Arc::clone(&self), width)
    }

    /// What becomes of hidden states.
    pub(crate) fn pooler(&self) -> &Pooler {
        self.text.pooler()
    }
}
