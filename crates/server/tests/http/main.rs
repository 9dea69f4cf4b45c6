//! The HTTP server over a real socket, with a scripted engine.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod access;
mod answer_fields;
mod batches;
mod client_tools;
mod compaction;
mod connections;
mod conversations;
mod custom_calls;
mod decisions;
mod gateways;
mod hostile_agents;
mod item_references;
mod keys;
mod large_bodies;
mod live;
mod llama_extras;
mod mcp;
mod media;
mod messages;
mod metrics;
mod mutated;
mod ollama;
mod page;
mod pooling;
mod recording;
mod refusals;
mod responses;
mod responses_api;
mod responses_fields;
mod responses_socket;
mod scripted;
mod scripts;
mod short_paths;
mod stream;
mod third_api;
mod tls;
mod traces;

use omnibus_testing::{client, hostile_requests as hostile, mutate};

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use omnibus_server::{Keys, ListenAddress, Listeners, Settings, serve};
use tokio::sync::oneshot;

use scripted::{RequestEvent, ScriptedEngine};

/// A server on its own port, stopped when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub engine: Arc<ScriptedEngine>,
    pub request_events: Receiver<RequestEvent>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub fn server() -> Server {
    server_with(Settings::default())
}

pub fn server_with_keys(keys: &[&str]) -> Server {
    let keys = Keys::new(keys.iter().map(|key| (*key).to_owned())).unwrap();
    server_with(Settings { keys, ..Settings::default() })
}

pub fn server_with(settings: Settings) -> Server {
    server_on(async { Listeners::bind("127.0.0.1", 0).await.unwrap() }, settings)
}

/// On sockets that are bound in the server's runtime.
pub fn server_on(bind: impl Future<Output = Listeners> + Send + 'static, settings: Settings) -> Server {
    let (recorder, request_events) = channel();
    let (stop, stopped) = oneshot::channel();
    let (found, address) = channel();
    let engine = Arc::new(ScriptedEngine::new(recorder));
    let shared: Arc<dyn omnibus_server::Engine> = Arc::clone(&engine) as _;
    let run = async move {
        let listeners = bind.await;
        found.send(tcp_address(&listeners)).unwrap();
        let stop = async {
            _ = stopped.await;
        };
        serve(listeners, shared, settings, stop).await;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let thread = std::thread::spawn(move || runtime.block_on(run));
    Server {
        address: address.recv().unwrap(),
        engine,
        request_events,
        stop: Some(stop),
        thread: Some(thread),
    }
}

/// The address of the TCP socket; no address where there is none.
pub fn tcp_address(listeners: &Listeners) -> SocketAddr {
    let addresses = listeners.addresses().unwrap().into_iter();
    let mut tcp = addresses.filter_map(|address| match address {
        ListenAddress::Tcp(address) => Some(address),
        ListenAddress::Unix(_) => None,
    });
    tcp.next_back().unwrap_or_else(|| ([0, 0, 0, 0], 0).into())
}

impl Server {
    /// The next event that the engine recorded.
    pub fn next_event(&self) -> RequestEvent {
        self.request_events.recv_timeout(std::time::Duration::from_secs(120)).unwrap()
    }

    /// The next submitted request.
    pub fn submitted(&self) -> scripted::RequestSeen {
        match self.next_event() {
            RequestEvent::Submitted(seen) => *seen,
            other => panic!("{other:?}"),
        }
    }

    /// Starts the shutdown.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            _ = stop.send(());
        }
    }

    /// Shuts down and waits for the end.
    pub fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
