//! Accepts connections until shutdown, then lets running requests finish.
//!
//! Invariant: a shutdown takes at most the shutdown timeout plus [`CLOSE_TIMEOUT`].

mod accept_errors;
mod sockets;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use futures::future::join_all;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::access::Arrival;
use crate::app::{App, Settings};
use crate::batch_runner;
use crate::engine::Engine;
use crate::metrics::UPKEEP;
use crate::records::Records;
use crate::root_path::RootPath;
use crate::routes::router;
use crate::tls::Tls;
use crate::traces::Traces;
use accept_errors::{AcceptErrors, AcceptFailure};
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
    let service = Service {
        router: router(Arc::clone(&app)),
        root_path: settings.root_path.clone(),
        header_timeout: settings.limits.header_timeout,
    };
    let (stopping, _) = watch::channel(());
    let tls = settings.tls.as_ref().map(Tls::acceptor);
    let connections = Connections { service, tls, graceful: GracefulShutdown::new(), stopping };
    let upkeep = tokio::spawn(upkeep(Arc::clone(&app)));
    let runner = tokio::spawn(batch_runner::run(Arc::clone(&app)));
    tokio::select! {
        _ = join_all(listeners.iter().map(|listener| connections.accept_all(listener))) => {}
        () = stop => {}
    }
    drop(listeners);
    app.stop();
    tracing::info!(timeout_s = settings.shutdown_timeout.as_secs_f64(), "shutting down");
    let Connections { graceful, stopping, .. } = connections;
    drop(stopping);
    // Requests of batches run again after the next start: none of them is to end as cancelled.
    runner.abort();
    _ = runner.await;
    let closed = graceful.shutdown();
    engine.drain(settings.shutdown_timeout).await;
    if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
        tracing::warn!("dropped connections whose clients do not read");
    }
    upkeep.abort();
    let (traces, records) = (settings.traces, settings.records);
    let write_rest = move || {
        traces.iter().for_each(Traces::shut_down);
        records.iter().for_each(Records::flush);
    };
    if let Err(error) = tokio::task::spawn_blocking(write_rest).await {
        tracing::error!(%error, "traces and records of the last requests are lost");
    }
}

async fn upkeep(app: Arc<App>) {
    let mut ticks = tokio::time::interval(UPKEEP);
    loop {
        ticks.tick().await;
        app.metrics.run_upkeep();
    }
}

/// What every connection is served by.
#[derive(Clone)]
struct Service {
    router: Router,
    root_path: RootPath,
    header_timeout: Duration,
}

struct Connections {
    service: Service,
    /// Of TCP connections, if they are encrypted.
    tls: Option<TlsAcceptor>,
    graceful: GracefulShutdown,
    /// Closed when the server stops.
    stopping: watch::Sender<()>,
}

impl Connections {
    async fn accept_all(&self, listener: &Listener) {
        let mut errors = AcceptErrors::default();
        loop {
            let Err(error) = self.accept(listener).await else {
                if let Some(failures) = errors.accepted() {
                    tracing::info!(failures, "accepting connections again");
                }
                continue;
            };
            match AcceptFailure::of(&error) {
                AcceptFailure::OfConnection => tracing::debug!(%error, "a connection ended before it began"),
                AcceptFailure::OfServer => {
                    if let Some(failures) = errors.failed(Instant::now()) {
                        tracing::warn!(%error, failures, "cannot accept connections");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Accepts the next connection, and serves it in a task of its own.
    async fn accept(&self, listener: &Listener) -> io::Result<()> {
        match listener {
            Listener::Tcp(listener, bound) => {
                let (stream, _) = listener.accept().await?;
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                let arrival = Arrival::Tcp(*bound);
                match &self.tls {
                    Some(tls) => self.start_encrypted(tls, stream, arrival),
                    None => self.start(stream, arrival),
                }
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                self.start(stream, Arrival::Unix);
            }
        }
        Ok(())
    }

    fn start(&self, stream: impl Stream, arrival: Arrival) {
        tokio::spawn(self.service.clone().serve(stream, arrival, self.graceful.watcher()));
    }

    /// The handshake is part of the task: a client that does not finish it holds up no other, and no shutdown.
    fn start_encrypted(&self, tls: &TlsAcceptor, stream: TcpStream, arrival: Arrival) {
        let (service, mut stopping) = (self.service.clone(), self.stopping.subscribe());
        let (handshake, watcher) = (tls.accept(stream), self.graceful.watcher());
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(service.header_timeout, handshake);
            let encrypted = tokio::select! {
                encrypted = handshake => encrypted.unwrap_or_else(|late| Err(late.into())),
                _ = stopping.changed() => return,
            };
            match encrypted {
                Ok(stream) => service.serve(stream, arrival, watcher).await,
                Err(error) => tracing::debug!(%error, "no TLS handshake"),
            }
        });
    }
}

/// The bytes of a connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

impl Service {
    /// Serves a connection to its end, or to the end of its last request in a shutdown.
    async fn serve(self, stream: impl Stream, arrival: Arrival, watcher: Watcher) {
        let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.header_timeout);
        let service =
            service_fn(move |request: hyper::Request<Incoming>| self.clone().respond(arrival, request));
        // A connection that became a WebSocket is not waited for at the end.
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%error, "connection ended early");
        }
    }

    async fn respond(
        self,
        arrival: Arrival,
        request: hyper::Request<Incoming>,
    ) -> Result<axum::response::Response, Infallible> {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(arrival);
        let target = std::mem::take(request.uri_mut());
        *request.uri_mut() = self.root_path.strip(target);
        tower::ServiceExt::oneshot(self.router, request).await
    }
}
