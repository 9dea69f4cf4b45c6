//! State shared by all routes, and the server's settings.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use omnibus_engine::{Chat, Class};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use crate::access::Access;
use crate::batches::{BatchSettings, Batches};
use crate::engine::{Engine, Lease, ModelName};
use crate::error::ApiError;
use crate::event_log::EventLogs;
use crate::keys::Keys;
use crate::limits::{Bodies, Limits};
use crate::mcp::SharedMcp;
use crate::media_urls::MediaUrls;
use crate::metrics;
use crate::metrics::vllm::{VllmMetrics, VllmRequest};
use crate::records::Records;
use crate::root_path::RootPath;
use crate::stored_responses::StoredResponses;
use crate::tls::Tls;
use crate::traces::Traces;

/// Most clients that watch the status at once.
const WATCHERS_MAX: usize = 32;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which hosts and origins requests may name.
    pub access: Access,
    /// The prefix of paths that a proxy adds.
    pub root_path: RootPath,
    /// The certificate of TCP connections; without one they are not encrypted.
    pub tls: Option<Tls>,
    /// Accepted API keys.
    pub keys: Keys,
    /// Places in the engine's queue, of which a key may have a share.
    pub queue_places: usize,
    /// Sequences that the engine runs at once.
    pub max_num_seqs: usize,
    /// Processes that compute a model together.
    pub tensor_parallel_size: usize,
    /// Limits on one request.
    pub limits: Limits,
    /// How long a shutdown waits for running requests.
    pub shutdown_timeout: Duration,
    /// Which model names are served on Anthropic's routes and on `/v1/responses`.
    pub model_names: ModelNames,
    /// How long a stream is silent before it shows that it is alive.
    pub keep_alive: Duration,
    /// Responses that are kept.
    pub responses: Arc<StoredResponses>,
    /// Whether clients may load and unload adapters.
    pub adapter_updates: AdapterUpdates,
    /// Where media may come from.
    pub media_urls: MediaUrls,
    /// Whether requests may have chat templates of their own.
    pub request_templates: RequestTemplates,
    /// Metrics by vLLM's names, beside ours.
    pub vllm_metrics: Option<VllmMetrics>,
    /// Where spans of requests go.
    pub traces: Option<Traces>,
    /// Where requests are recorded.
    pub records: Option<Records>,
    /// Batches, where they are kept.
    pub batches: Option<BatchSettings>,
    /// What the page shows of the settings: a list of objects with `name`, `value` and `source`. Without it there is no page.
    pub page_settings: Option<Arc<Value>>,
    /// MCP servers, whose tools it runs.
    pub mcp: Option<SharedMcp>,
}

/// Whether clients may load and unload adapters: a load reads a directory on the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AdapterUpdates {
    /// The routes answer 404.
    #[default]
    Refused,
    /// Every client may whose key has no role, or the role of an administrator.
    Allowed,
}

/// Whether requests may have chat templates of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RequestTemplates {
    /// They are refused.
    #[default]
    Refused,
    /// They are rendered, within the limits of all templates.
    Trusted,
}

impl RequestTemplates {
    /// Fails for a conversation with a template of its own, unless it is trusted.
    pub fn check(self, chat: &Chat) -> Result<(), ApiError> {
        if chat.own_template.is_none() || self == Self::Trusted {
            return Ok(());
        }
        let message =
            "`chat_template` is not supported: this server was started without --trust-request-chat-template";
        Err(ApiError::unsupported("chat_template", message))
    }
}

/// Which model names are served where clients choose names of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModelNames {
    /// Any: the loaded model serves unknown names.
    #[default]
    Any,
    /// Only models that are listed.
    Strict,
}

/// Whether a model or an adapter has this name.
pub fn is_listed(engine: &dyn Engine, name: &str) -> bool {
    engine.models().iter().any(|model| model.names().any(|served| served == name))
}

impl ModelNames {
    /// The served name of a model; `None` for the default one.
    pub fn served<'a>(self, name: ModelName<'a>, engine: &dyn Engine) -> ModelName<'a> {
        name.filter(|name| self == Self::Strict || is_listed(engine, name))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            access: Access::default(),
            root_path: RootPath::default(),
            tls: None,
            keys: Keys::default(),
            queue_places: usize::MAX,
            max_num_seqs: usize::MAX,
            tensor_parallel_size: 1,
            limits: Limits::default(),
            shutdown_timeout: Duration::from_secs(30),
            model_names: ModelNames::default(),
            keep_alive: Duration::from_secs(10),
            responses: Arc::default(),
            adapter_updates: AdapterUpdates::default(),
            media_urls: MediaUrls::default(),
            request_templates: RequestTemplates::default(),
            vllm_metrics: None,
            traces: None,
            records: None,
            batches: None,
            page_settings: Some(Arc::new(Value::Array(Vec::new()))),
            mcp: None,
        }
    }
}

/// The state of one server.
pub struct App {
    /// Generates completions.
    pub engine: Arc<dyn Engine>,
    /// Which hosts and origins requests may name.
    pub access: Access,
    /// The prefix of paths that a proxy adds.
    pub root_path: RootPath,
    /// Accepted API keys.
    pub keys: Keys,
    /// Places in the engine's queue, of which a key may have a share.
    pub queue_places: usize,
    /// Sequences that the engine runs at once.
    pub max_num_seqs: usize,
    /// Processes that compute a model together.
    pub tensor_parallel_size: usize,
    /// Receives the bodies of requests.
    pub bodies: Bodies,
    /// Renders the metrics for `/metrics`.
    pub metrics: PrometheusHandle,
    /// Which model names are served where clients choose names of their own.
    pub model_names: ModelNames,
    /// How long a stream is silent before it shows that it is alive.
    pub keep_alive: Duration,
    /// Responses that are kept.
    pub responses: Arc<StoredResponses>,
    /// Whether clients may load and unload adapters.
    pub adapter_updates: AdapterUpdates,
    /// Where media may come from.
    pub media_urls: MediaUrls,
    /// Whether requests may have chat templates of their own.
    pub request_templates: RequestTemplates,
    /// Metrics by vLLM's names, beside ours.
    pub vllm_metrics: Option<VllmMetrics>,
    /// Where spans of requests go.
    pub traces: Option<Traces>,
    /// Where requests are recorded.
    pub records: Option<Records>,
    /// The events of responses that are streamed in the background.
    pub event_logs: EventLogs,
    /// Batches, where they are kept.
    pub batches: Option<Batches>,
    /// What the page shows of the settings. Without it there is no page.
    pub page_settings: Option<Arc<Value>>,
    /// MCP servers, whose tools it runs.
    pub mcp: Option<SharedMcp>,
    /// Places of clients that watch the status.
    pub watchers: Arc<Semaphore>,
    stopping: watch::Sender<bool>,
}

impl App {
    /// A server that accepts requests.
    pub fn new(engine: Arc<dyn Engine>, settings: &Settings) -> Self {
        let metrics = metrics::install();
        if settings.vllm_metrics.is_some()
            && let Some(model) = engine.models().first()
        {
            VllmRequest::register(&model.id);
        }
        Self {
            engine,
            access: settings.access.clone(),
            root_path: settings.root_path.clone(),
            keys: settings.keys.clone(),
            queue_places: settings.queue_places,
            max_num_seqs: settings.max_num_seqs,
            tensor_parallel_size: settings.tensor_parallel_size,
            bodies: Bodies::new(settings.limits),
            metrics,
            model_names: settings.model_names,
            keep_alive: settings.keep_alive,
            responses: Arc::clone(&settings.responses),
            adapter_updates: settings.adapter_updates,
            media_urls: settings.media_urls.clone(),
            request_templates: settings.request_templates,
            vllm_metrics: settings.vllm_metrics.clone(),
            traces: settings.traces.clone(),
            records: settings.records.clone(),
            event_logs: EventLogs::default(),
            batches: settings.batches.as_ref().map(Batches::new),
            page_settings: settings.page_settings.clone(),
            mcp: settings.mcp.clone(),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            stopping: watch::Sender::new(false),
        }
    }

    /// The right to use a served model, once it is loaded. Fails where the tenant's key may not use it.
    pub async fn lease(&self, tenant: &str, model: ModelName<'_>) -> Result<Lease, ApiError> {
        let key = self.keys.of_tenant(tenant)?;
        key.check_model(model, self.engine.as_ref())?;
        if !key.may_search() && model.is_some_and(|name| !is_listed(self.engine.as_ref(), name)) {
            return Ok(Lease::default());
        }
        Ok(self.engine.lease(model).await?)
    }

    /// As [`App::lease`]; until its sequences have places of their own, a request has one of its key's share of the queue.
    pub async fn queued_lease(
        &self,
        tenant: &str,
        class: Class,
        model: ModelName<'_>,
    ) -> Result<Lease, ApiError> {
        let _waiting = self.keys.of_tenant(tenant)?.queue(self.queue_places, class)?;
        self.lease(tenant, model).await
    }

    /// The served name of a model, in APIs whose clients choose names of their own; `None` for the default one.
    pub fn served<'a>(&self, name: ModelName<'a>) -> ModelName<'a> {
        self.model_names.served(name, self.engine.as_ref())
    }

    /// What records a request that is just submitted by vLLM's names, where that is wanted.
    pub fn vllm_request(&self) -> Option<VllmRequest> {
        self.vllm_metrics.as_ref()?;
        let models = self.engine.models();
        models.first().map(|model| VllmRequest::new(model.id.as_str().into()))
    }

    /// The batches. Fails with 404 where none are kept.
    pub fn batches(&self) -> Result<&Batches, ApiError> {
        self.batches.as_ref().ok_or_else(|| {
            ApiError::not_found("this server keeps no files and batches: it was started without --state-dir")
        })
    }

    /// Makes `/ready` answer 503 from now on.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Whether the server is shutting down.
    pub fn stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the server shuts down.
    pub async fn stopped(&self) {
        // It fails once the sender is gone, which is the server itself.
        _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }
}

/// Runs work of some milliseconds off the threads that serve connections, in the same tracing span.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "request handler panicked");
            Err(ApiError::internal("the server failed on this request; this is a bug"))
        }
    }
}
