//! What every route shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;

use crate::auth::Keys;
use crate::engine::Engine;
use crate::error::ApiError;
use crate::limits::Limits;
use crate::metrics;
use crate::running::Running;

/// How a server behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who is let in.
    pub keys: Keys,
    /// What one request may cost.
    pub limits: Limits,
    /// How long a stop waits for what runs.
    pub shutdown_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { keys: Keys::default(), limits: Limits::default(), shutdown_timeout: Duration::from_secs(30) }
    }
}

/// One server.
pub struct App {
    /// Who generates.
    pub engine: Arc<dyn Engine>,
    /// Who is let in.
    pub keys: Keys,
    /// What one request may cost.
    pub limits: Limits,
    /// What runs, and for whom.
    pub running: Running,
    /// Where metrics are scraped from.
    pub metrics: PrometheusHandle,
    stopping: AtomicBool,
}

impl App {
    /// A server that takes requests.
    pub fn new(engine: Arc<dyn Engine>, settings: &Settings) -> Self {
        Self {
            engine,
            keys: settings.keys.clone(),
            limits: settings.limits,
            running: Running::default(),
            metrics: metrics::install(),
            stopping: AtomicBool::new(false),
        }
    }

    /// `/ready` says no from now on.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether it is about to end.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Does work of some milliseconds beside the threads that serve connections.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a request's work panicked");
            Err(ApiError::internal("the server failed on this request; this is a bug"))
        }
    }
}
