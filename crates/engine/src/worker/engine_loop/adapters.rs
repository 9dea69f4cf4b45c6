//! Named adapters: loaded and unloaded between two steps.

use super::EngineLoop;
use crate::error::Failure;
use crate::message::{Answer, Job, QueryId, QueryReply};
use crate::settings::NamedAdapter;

impl EngineLoop {
    /// Loads an adapter. Steps wait for it.
    pub(super) fn load_adapter(&mut self, query: QueryId, adapter: &NamedAdapter) {
        let loaded = match &self.prompt_file {
            // What the file holds was computed without the adapter.
            Some(_) => {
                Err("adapters cannot be named while every prompt continues a prompt cache file".into())
            }
            None => self.device.load_adapter(&adapter.path),
        };
        if let Ok(id) = loaded {
            self.loaded_adapters.insert(id);
            self.retired_adapters.remove(&id);
        }
        self.replies.push(QueryReply { query, answer: Answer::Adapter(loaded) });
    }

    /// Unloads the adapters that are no longer served and that no job uses.
    pub(super) fn unload_retired_adapters(&mut self) {
        if self.retired_adapters.is_empty() || !self.in_flight.is_empty() {
            return;
        }
        let in_use = |id: &u128| self.jobs.values().any(|active| active.job.request.adapter == *id);
        let unused: Vec<u128> = self.retired_adapters.iter().copied().filter(|id| !in_use(id)).collect();
        for id in unused {
            self.retired_adapters.remove(&id);
            match self.device.unload_adapter(id) {
                Ok(()) => _ = self.loaded_adapters.remove(&id),
                Err(error) => tracing::warn!(error, "an adapter could not be unloaded"),
            }
        }
    }

    /// Why a job whose adapter is not loaded fails: a later process found other files in its place.
    pub(super) fn missing_adapter(&self, job: &Job) -> Option<Failure> {
        let adapter = job.request.adapter;
        (adapter != 0 && !self.loaded_adapters.contains(&adapter)).then(|| {
            Failure::unavailable("the adapter could not be loaded again; unload it and load it once more")
        })
    }
}
