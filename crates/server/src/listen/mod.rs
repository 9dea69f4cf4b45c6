//! Accepts connections until shutdown, then lets running requests finish.
//!
//! Invariant: a shutdown takes at most the shutdown timeout plus [`CLOSE_TIMEOUT`].

mod sockets;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::future::join_all;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::access::Arrival;
use crate::app::{App, Settings};
use crate::engine::Engine;
use crate::metrics::UPKEEP;
use crate::routes::router;
use sockets::Listener;
pub use sockets::{InheritedSockets, ListenAddress, Listeners};

/// Time for connections to send their last bytes after the last request ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept, which most often means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `engine` on `listeners` until `stop` resolves, then drains for up to the shutdown timeout.
pub async fn serve(
    listeners: Listeners,
    engine: Arc<dyn Engine>,
    settings: Settings,
    stop: impl Future<Output = ()>,
) {
    let app = Arc::new(App::new(Arc::clone(&engine), &settings));
    let connections =
        Connections { router: router(Arc::clone(&app)), header_timeout: settings.limits.header_timeout };
    let graceful = GracefulShutdown::new();
    let upkeep = tokio::spawn(upkeep(Arc::clone(&app)));
    tokio::select! {
        _ = join_all(listeners.iter().map(|listener| connections.accept_all(listener, &graceful))) => {}
        () = stop => {}
    }
    drop(listeners);
    app.stop();
    tracing::info!(timeout_s = settings.shutdown_timeout.as_secs_f64(), "shutting down");
    let closed = graceful.shutdown();
    engine.drain(settings.shutdown_timeout).await;
    if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
        tracing::warn!("dropped connections whose clients do not read");
    }
    upkeep.abort();
}

async fn upkeep(app: Arc<App>) {
    let mut ticks = tokio::time::interval(UPKEEP);
    loop {
        ticks.tick().await;
        app.metrics.run_upkeep();
    }
}

struct Connections {
    router: Router,
    header_timeout: Duration,
}

impl Connections {
    async fn accept_all(&self, listener: &Listener, graceful: &GracefulShutdown) {
        loop {
            if let Err(error) = self.accept(listener, graceful).await {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    /// Accepts the next connection, and serves it in a task of its own.
    async fn accept(&self, listener: &Listener, graceful: &GracefulShutdown) -> std::io::Result<()> {
        match listener {
            Listener::Tcp(listener, bound) => {
                let (stream, _) = listener.accept().await?;
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                self.start(stream, Arrival::Tcp(*bound), graceful);
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                self.start(stream, Arrival::Unix, graceful);
            }
        }
        Ok(())
    }

    fn start(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        arrival: Arrival,
        graceful: &GracefulShutdown,
    ) {
        let router = self.router.clone();
        let service =
            service_fn(move |request: hyper::Request<Incoming>| respond(router.clone(), arrival, request));
        let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.header_timeout);
        // A connection that became a WebSocket is not waited for at the end.
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let watched = graceful.watch(connection.into_owned());
        tokio::spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(%error, "connection ended early");
            }
        });
    }
}

async fn respond(
    router: Router,
    arrival: Arrival,
    request: hyper::Request<Incoming>,
) -> Result<axum::response::Response, Infallible> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(arrival);
    tower::ServiceExt::oneshot(router, request).await
}
