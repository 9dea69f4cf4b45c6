//! Requests that generate nothing: texts that become vectors, scores and labels, and prompts that are only computed.

pub mod classify;
pub mod embed;
pub mod embeddings;
pub mod rerank;
pub mod score;
mod scores;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use futures::StreamExt;
use omnibus_engine::{
    Class, Event, Input, Pooled, Pooler, PoolingRequest, RequestOrigin, Scoring, ScoringRequest, Task, Usage,
};
use serde_json::Value;
use uuid::Uuid;

use crate::api::{Origin, count_refused};
use crate::app::{App, blocking};
use crate::engine::{Lease, ModelName};
use crate::error::ApiError;
use crate::keys::{Key, QueuePlace, StreamPlace};
use crate::limits::Reading;
use crate::lower::Caller;

/// Which texts were cut, by their numbers.
const TRUNCATED: HeaderName = HeaderName::from_static("x-omnibus-truncated");

/// Most texts that the header names.
const NAMED_MAX: usize = 256;

/// A request whose texts are pooled, whose replies are scored, or whose prompt is computed for another replica.
pub(super) struct PoolingCall {
    app: Arc<App>,
    key: Arc<Key>,
    pub(super) caller: Caller,
    request_id: String,
    class: Class,
    api: &'static str,
    since: Instant,
    _stream: StreamPlace,
    _queued: QueuePlace,
    _lease: Lease,
    /// The room that the texts take.
    _reading: Option<Reading>,
}

impl PoolingCall {
    /// Reads a request's body, and begins a call.
    pub(super) async fn open(
        app: Arc<App>,
        request: axum::extract::Request,
        api: (&'static str, &str),
    ) -> Result<(Self, Value), ApiError> {
        Self::open_named(app, request, api, |_, name| name).await
    }

    /// Reads a request's body, and begins a call, where clients choose names of their own.
    pub(super) async fn open_any(
        app: Arc<App>,
        request: axum::extract::Request,
        api: (&'static str, &str),
    ) -> Result<(Self, Value), ApiError> {
        Self::open_named(app, request, api, |app, name| app.served(name)).await
    }

    /// Begins a call of the model that a body's name means.
    async fn open_named(
        app: Arc<App>,
        request: axum::extract::Request,
        api: (&'static str, &str),
        served: impl for<'a> FnOnce(&App, ModelName<'a>) -> ModelName<'a>,
    ) -> Result<(Self, Value), ApiError> {
        let origin = Origin::of(&request);
        let body = app.bodies.json(request).await?;
        let (body, reading) = blocking(move || body.parse()).await?;
        let model = served(&app, body.get("model").and_then(Value::as_str));
        let call = Self::new(Arc::clone(&app), origin, api, model).await?;
        Ok((Self { _reading: Some(reading), ..call }, body))
    }

    /// Begins a call, once its model is loaded. `api`: the label of metrics, and the prefix of ids.
    pub(super) async fn new(
        app: Arc<App>,
        origin: Origin,
        (api, prefix): (&'static str, &str),
        model: ModelName<'_>,
    ) -> Result<Self, ApiError> {
        let response_id = format!("{prefix}{}", Uuid::new_v4().simple());
        let key = app.keys.of_tenant(&origin.tenant)?;
        let class = origin.class;
        let (stream, queued) = (key.admit(class)?, key.queue(app.queue_places, class)?);
        let lease = app.lease(&origin.tenant, model).await?;
        let caller = Caller { response_id, tenant: origin.tenant };
        let (request_id, since) = (origin.request_id.0, Instant::now());
        Ok(Self {
            app,
            key,
            caller,
            request_id,
            class,
            api,
            since,
            _stream: stream,
            _queued: queued,
            _lease: lease,
            _reading: None,
        })
    }

    /// What the model is for.
    pub(super) fn pooler(&self, model: Option<&str>) -> Result<Pooler, ApiError> {
        Ok(self.app.engine.pooler(model)?)
    }

    /// The model's name, as the client wrote it.
    pub(super) fn name(&self, model: Option<&str>) -> String {
        let default = || self.app.engine.models().into_iter().next().map(|model| model.id);
        model.map(str::to_owned).or_else(default).unwrap_or_default()
    }

    /// Seconds since 1970.
    pub(super) fn created(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// Pools texts, charges the key for them, and counts the request.
    pub(super) async fn pool(&self, pooling: PoolingRequest) -> Result<Vec<Pooled>, ApiError> {
        let pooled = self.pool_part(pooling).await?;
        self.end_pooling(tokens(&pooled));
        Ok(pooled)
    }

    /// Charges the key for so many tokens of all parts, and counts the request.
    pub(super) fn end_pooling(&self, tokens: usize) {
        self.end(tokens, 0);
    }

    /// Pools some of a request's texts.
    pub(super) async fn pool_part(&self, mut pooling: PoolingRequest) -> Result<Vec<Pooled>, ApiError> {
        pooling.request.class = self.class;
        pooling.request.origin = self.origin();
        let app = Arc::clone(&self.app);
        let pooled = blocking(move || app.engine.pool(pooling).map_err(ApiError::from)).await?.await;
        pooled.map_err(ApiError::from)
    }

    /// Scores replies to prompts that are made where that may take a while, charges the key for them, and counts the
    /// request.
    pub(super) async fn score(
        &self,
        prompts: impl FnOnce(&App) -> Result<ScoringRequest, ApiError> + Send + 'static,
    ) -> Result<Scoring, ApiError> {
        let (app, origin, class) = (Arc::clone(&self.app), self.origin(), self.class);
        let work = move || {
            let mut scoring = prompts(&app)?;
            (scoring.request.origin, scoring.request.class) = (origin, class);
            app.engine.score(scoring).map_err(ApiError::from)
        };
        let scoring = blocking(work).await?.await.map_err(ApiError::from)?;
        self.end(scoring.prompt_tokens, scoring.cached_tokens);
        Ok(scoring)
    }

    /// Computes a prompt whose blocks' hashes begin with a replica's namespace, and charges the key for it.
    pub(super) async fn compute(&self, tokens: Vec<u32>, namespace: u128) -> Result<Usage, ApiError> {
        let request = omnibus_engine::Request {
            origin: self.origin(),
            class: self.class,
            tenant: self.caller.tenant.clone(),
            max_new_tokens: Some(0),
            cache_namespace: Some(namespace),
            ..omnibus_engine::Request::new(&self.caller.response_id, Input::Tokens(tokens))
        };
        let app = Arc::clone(&self.app);
        let mut events = blocking(move || app.engine.submit(request).map_err(ApiError::from)).await?;
        while let Some(event) = events.next().await {
            match event {
                Event::Finished { usage, .. } => {
                    self.end(usage.prompt_tokens, usage.cached_tokens);
                    return Ok(usage);
                }
                Event::Failed(failure) => return Err(failure.into()),
                _ => {}
            }
        }
        Err(ApiError::unavailable("the engine has ended"))
    }

    /// The served model for a name, where clients choose names of their own. Fails where the key may not use it.
    pub(super) fn served(&self, name: Option<&str>) -> Result<Option<String>, ApiError> {
        let model = self.app.served(name).map(str::to_owned);
        self.check_model(model.as_deref())?;
        Ok(model)
    }

    /// Fails where the key may not use a model.
    pub(super) fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        self.key.check_model(model, self.app.engine.as_ref())
    }

    fn origin(&self) -> RequestOrigin {
        RequestOrigin {
            response_id: self.caller.response_id.clone(),
            request_id: self.request_id.clone(),
            index: 0,
        }
    }

    /// Charges the key, and counts the request.
    fn end(&self, tokens: usize, cached: usize) {
        self.key.account.charge_prompt(tokens as u64, cached as u64);
        metrics::counter!("omnibus_requests_total", "api" => self.api, "outcome" => "stop").increment(1);
        let seconds = self.since.elapsed().as_secs_f64();
        metrics::histogram!("omnibus_e2e_seconds", "api" => self.api).record(seconds);
    }
}

/// A response, or a failure, which is counted.
pub(super) fn answered<T>(api: &'static str, answer: Result<T, ApiError>) -> Result<T, ApiError> {
    answer.inspect_err(|error| count_refused(api, error))
}

/// Names the texts that were cut in a header.
pub(super) fn name_cut(response: &mut Response, pooled: &[Pooled]) {
    let cut = pooled.iter().enumerate().filter(|(_, text)| text.cut_from.is_some());
    let numbers: Vec<String> = cut.map(|(number, _)| number.to_string()).take(NAMED_MAX).collect();
    if !numbers.is_empty()
        && let Ok(value) = HeaderValue::from_str(&numbers.join(","))
    {
        response.headers_mut().insert(TRUNCATED, value);
    }
}

/// Tokens of all texts.
pub(super) fn tokens(pooled: &[Pooled]) -> usize {
    pooled.iter().map(|text| text.tokens).sum()
}

/// The error of a model that is for something else.
pub(super) fn wrong_task(task: &Task, wanted: &str) -> ApiError {
    let does = match task {
        Task::Embed | Task::EmbedSparse { .. } => "gives vectors of texts; use /v1/embeddings",
        Task::EmbedTokens => "gives a vector of each token; use /pooling, /v1/rerank or /v1/score",
        Task::Score { .. } | Task::ScoreTokens { .. } => "scores pairs of texts; use /v1/rerank or /v1/score",
        Task::Classify { .. } => "labels texts; use /classify",
        Task::ClassifyTokens { .. } => "labels tokens; use /pooling",
    };
    ApiError::unsupported("model", format!("this model {wanted}: it {does}"))
}

/// Whether each text has one vector.
pub(super) fn embeds_texts(task: &Task) -> bool {
    matches!(task, Task::Embed | Task::EmbedSparse { .. })
}

/// A vector of this width, if the model can be cut to it.
pub(super) fn cut(pooler: &Pooler, vector: &[f32], dimensions: Option<usize>) -> Result<Vec<f32>, ApiError> {
    let Some(width) = dimensions else { return Ok(vector.to_vec()) };
    if *pooler.task() != Task::Embed {
        let message = "`dimensions` is for models with one dense vector for each text, which this is not";
        return Err(ApiError::invalid("dimensions", message));
    }
    let allowed = match pooler.dimensions() {
        omnibus_engine::Dimensions::Any if width <= vector.len() => None,
        omnibus_engine::Dimensions::Any => Some(format!("between 1 and {}", vector.len())),
        omnibus_engine::Dimensions::Of(listed) if listed.contains(&width) => None,
        omnibus_engine::Dimensions::Of(listed) => {
            let listed: Vec<String> = listed.iter().map(usize::to_string).collect();
            Some(format!("one of {}", listed.join(", ")))
        }
    };
    match allowed {
        None => Ok(pooler.cut(vector, width)),
        Some(allowed) => {
            let message = format!("`dimensions` must be {allowed} for this model, not {width}");
            Err(ApiError::invalid("dimensions", message))
        }
    }
}
