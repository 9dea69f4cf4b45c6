//! Accepts connections until shutdown, then lets running requests finish.
//!
//! Invariant: a shutdown takes at most the shutdown timeout plus [`CLOSE_TIMEOUT`].

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::app::{App, Settings};
use crate::engine::Engine;
use crate::metrics::UPKEEP;
use crate::routes::router;

/// Time for connections to send their last bytes after the last request ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept, which most often means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Length of the accept queue: a burst of connections waits instead of being reset.
const BACKLOG: u32 = 4096;

/// Serves `engine` on `listener` until `stop` resolves, then drains for up to the shutdown timeout.
pub async fn serve(
    listener: TcpListener,
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
        () = connections.accept(&listener, &graceful) => {}
        () = stop => {}
    }
    drop(listener);
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
    async fn accept(&self, listener: &TcpListener, graceful: &GracefulShutdown) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.start(stream, graceful),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn start(&self, stream: TcpStream, graceful: &GracefulShutdown) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let router = self.router.clone();
        let service = service_fn(move |request: hyper::Request<Incoming>| respond(router.clone(), request));
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
    request: hyper::Request<Incoming>,
) -> Result<axum::response::Response, Infallible> {
    tower::ServiceExt::oneshot(router, request.map(Body::new)).await
}

/// Listens on the first address of `host` that can be bound. Fails with the last address's error.
pub async fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A new server can bind the port while old connections are in TIME_WAIT.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
