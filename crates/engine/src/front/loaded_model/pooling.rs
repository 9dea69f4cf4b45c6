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

impl LoadedModel {
    /// Tokenizes texts, to be pooled by a model. Takes up to seconds of CPU for many.
    pub(crate) fn pool(self: Arc<Self>, pooling: PoolingRequest) -> Result<PoolingRun, Failure> {
        self.check_open()?;
        let model = self.resolve(pooling.request.model.as_deref())?;
        let Some(width) = self.details().map(|details| details.hidden_size) else {
            return Err(Failure::unavailable("the model is not loaded"));
        };
        let (limit, vocab) = (model.limits.max_model_len, model.limits.vocab_size);
        let model = PoolingModel { text: model.text, pooler: self.pooler(), limit, vocab };
        model.prepare(pooling, Arc::clone(&self), width)
    }

    /// What becomes of hidden states.
    pub(crate) fn pooler(&self) -> &Pooler {
        self.text.pooler()
    }
}
