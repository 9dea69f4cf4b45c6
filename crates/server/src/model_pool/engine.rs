//! What the server wants of an engine, by the engine of the model that a request names.

use std::path::Path;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use omnibus_engine::{
    AddSpecial, Admission, BlockQuery, BlocksRefused, Chat, Failure, Health, Input, ModelInfo, Pooler,
    PoolingRequest, Request, RequestInfo, ScoringRequest, SessionInfo, Stats, Transcription,
};
use omnibus_pool::Policy;
use serde_json::Value;

use super::ModelPool;
use crate::engine::{
    BlockRecords, Engine, Events, Lease, ModelName, PooledTexts, Residence, ScoredReplies, Steps, TimeToLive,
    Transcripts,
};

impl Engine for ModelPool {
    fn models(&self) -> Vec<ModelInfo> {
        self.listed()
    }

    fn lease<'a>(&'a self, model: ModelName<'a>) -> BoxFuture<'a, Result<Lease, Failure>> {
        Box::pin(self.leased(model))
    }

    fn unload<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let unknown = || Failure::unknown_model(model, &self.listed());
            self.pool.unload(self.id(Some(model)).ok_or_else(unknown)?).await;
            Ok(())
        })
    }

    fn plan<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Result<Option<Value>, Failure>> {
        Box::pin(self.planned(model))
    }

    fn set_ttl(&self, model: ModelName<'_>, ttl: TimeToLive) {
        let Some(id) = self.id(model) else { return };
        let (Some(of), Some(residence)) = (self.pool.model(id), self.pool.residence(id)) else { return };
        let ttl = match ttl {
            TimeToLive::Configured => of.ttl,
            TimeToLive::Forever => None,
            TimeToLive::For(time) => Some(time),
        };
        self.pool.set_policy(id, Policy { ttl, ..residence.policy });
    }

    fn residence(&self, model: ModelName<'_>) -> Option<Residence> {
        self.residence_of(self.id(model)?)
    }

    fn admit(&self, model: ModelName<'_>, tenant: &str) -> Result<Admission, Failure> {
        Engine::admit(&self.handle(model)?, model, tenant)
    }

    fn submit(&self, request: Request) -> Result<Events, Failure> {
        Engine::submit(&self.handle(request.model.as_deref())?, request)
    }

    fn transcribe(&self, transcription: Transcription) -> Result<Transcripts, Failure> {
        Engine::transcribe(&self.handle(transcription.request.model.as_deref())?, transcription)
    }

    fn pool(&self, pooling: PoolingRequest) -> Result<PooledTexts, Failure> {
        Engine::pool(&self.handle(pooling.request.model.as_deref())?, pooling)
    }

    fn score(&self, scoring: ScoringRequest) -> Result<ScoredReplies, Failure> {
        Engine::score(&self.handle(scoring.request.model.as_deref())?, scoring)
    }

    fn pooler(&self, model: ModelName<'_>) -> Result<Pooler, Failure> {
        self.handle(model)?.pooler(model)
    }

    fn cancel(&self, id: &str) -> bool {
        self.handles().iter().any(|handle| handle.cancel(id))
    }

    fn requests(&self) -> Vec<RequestInfo> {
        self.handles().iter().flat_map(|handle| handle.requests()).collect()
    }

    fn sessions(&self, model: ModelName<'_>, tenant: &str) -> Result<Vec<SessionInfo>, Failure> {
        match model {
            Some(_) => Engine::sessions(&self.handle(model)?, model, tenant),
            None => {
                let each = self.loaded().into_iter().map(|handle| handle.sessions(tenant));
                Ok(each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
            }
        }
    }

    fn find_blocks(&self, query: BlockQuery) -> Result<Result<Vec<usize>, BlocksRefused>, Failure> {
        first_with_blocks(self.loaded().iter().map(|handle| handle.find_blocks(query.clone())))
    }

    fn read_blocks(&self, query: BlockQuery) -> Result<Result<BlockRecords, BlocksRefused>, Failure> {
        first_with_blocks(self.loaded().iter().map(|handle| handle.read_blocks(query.clone())))
    }

    fn drop_session(&self, model: ModelName<'_>, tenant: &str, id: &str) -> Result<bool, Failure> {
        if model.is_some() {
            return Engine::drop_session(&self.handle(model)?, model, tenant, id);
        }
        for handle in self.loaded() {
            if handle.drop_session(tenant, id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn tokenize(
        &self,
        model: ModelName<'_>,
        input: &Input,
        special: AddSpecial,
    ) -> Result<Vec<u32>, Failure> {
        self.handle(model)?.tokenize(model, input, special)
    }

    fn render(&self, model: ModelName<'_>, chat: Chat) -> Result<String, Failure> {
        self.handle(model)?.render(model, chat)
    }

    fn without_markers(&self, model: ModelName<'_>, text: &str) -> Result<String, Failure> {
        self.handle(model)?.without_markers(model, text)
    }

    fn pieces(&self, model: ModelName<'_>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure> {
        self.handle(model)?.pieces(model, tokens)
    }

    fn detokenize(&self, model: ModelName<'_>, tokens: &[u32]) -> Result<String, Failure> {
        self.handle(model)?.detokenize(model, tokens)
    }

    /// Of all models, if none is named: the first that does not step speaks for them.
    fn health(&self, model: ModelName<'_>) -> Result<Health, Failure> {
        if model.is_some() {
            return Ok(self.handle(model)?.health());
        }
        let handles = self.handles();
        // A model that could not be loaded is no fault of the others.
        let looked_at = if handles.len() == 1 { handles.clone() } else { self.loaded() };
        let mut healths = looked_at.iter().map(|handle| handle.health());
        let unwell = healths.find(|health| !health.alive);
        let first = || looked_at.first().or(handles.first()).map(|handle| handle.health());
        let idle = || Health { alive: true, detail: "no model is loaded".to_owned() };
        Ok(unwell.or_else(first).unwrap_or_else(idle))
    }

    fn stats(&self, model: ModelName<'_>) -> Result<Stats, Failure> {
        match self.default_model() {
            // A server whose models are still to come.
            None if model.is_none() => Ok(Stats::default()),
            _ => Ok(self.handle(model)?.stats()),
        }
    }

    fn watch_steps(&self, model: ModelName<'_>) -> Result<Steps, Failure> {
        Engine::watch_steps(&self.handle(model)?, model)
    }

    fn replica_stats(&self, model: ModelName<'_>) -> Result<Vec<Stats>, Failure> {
        match self.default_model() {
            None if model.is_none() => Ok(Vec::new()),
            _ => Ok(self.handle(model)?.replica_stats()),
        }
    }

    fn load_adapter(&self, model: ModelName<'_>, name: &str, path: &Path) -> Result<ModelInfo, Failure> {
        self.handle(model)?.load_adapter(name, path)
    }

    fn unload_adapter<'a>(
        &'a self,
        model: ModelName<'a>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let of_adapter = || self.id(Some(name)).map(|_| name);
            self.handle(model.or_else(of_adapter))?.unload_adapter(name).await
        })
    }

    fn drain(&self, timeout: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.closing.send_replace(true);
            let handles = self.handles();
            join_all(handles.iter().map(|handle| handle.drain(timeout))).await;
        })
    }
}

/// The answer of the first model that has the blocks that were requested.
fn first_with_blocks<T>(
    answers: impl Iterator<Item = Result<Result<T, BlocksRefused>, Failure>>,
) -> Result<Result<T, BlocksRefused>, Failure> {
    let mut refused = Err(BlocksRefused::NotServed);
    for answer in answers {
        match answer? {
            Ok(found) => return Ok(Ok(found)),
            Err(why @ BlocksRefused::OtherModel) => refused = Err(why),
            Err(BlocksRefused::NotServed) => {}
        }
    }
    Ok(refused)
}
