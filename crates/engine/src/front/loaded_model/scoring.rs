//! Replies that are scored: tokenized, then run as requests that generate nothing.

mod prepare;
mod run;

use std::sync::Arc;

use super::LoadedModel;
use crate::error::Failure;
use crate::front::scoring::ScoringRequest;
use crate::request::Request;
use prepare::ScoringModel;
pub use run::ScoringRun;

impl LoadedModel {
    /// Tokenizes prompts and the replies to them, to be scored. Takes up to seconds of CPU for many.
    pub(crate) fn score(self: Arc<Self>, scoring: ScoringRequest) -> Result<ScoringRun, Failure> {
        self.check_open()?;
        let ScoringRequest { request, prompts } = scoring;
        let request = Request { max_new_tokens: None, ..request };
        self.text.check_generates(&request)?;
        let model = self.resolve(request.model.as_deref())?;
        let model = ScoringModel { text: model.text, limit: model.limits.max_model_len };
        let prompts = model.prepare(prompts)?;
        let before = self.text.prefix_tokens();
        Ok(ScoringRun::new(Arc::clone(&self), request, prompts, before))
    }
}
