//! The HTTP server over a real socket, with an engine that follows a script.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod client;
mod connections;
mod hostile;
mod refusals;
mod scripted;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use omnibus_server::{Keys, Settings, bind, serve};
use tokio::sync::oneshot;

use scripted::{Fate, Scripted};

/// A server on a port of its own, stopped when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub engine: Arc<Scripted>,
    pub fates: Receiver<Fate>,
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
    let (tell, fates) = channel();
    let (stop, stopped) = oneshot::channel();
    let (found, address) = channel();
    let engine = Arc::new(Scripted::new(tell));
    let shared: Arc<dyn omnibus_server::Engine> = Arc::clone(&engine) as _;
    let run = async move {
        let listener = bind("127.0.0.1", 0).await.unwrap();
        found.send(listener.local_addr().unwrap()).unwrap();
        let stop = async {
            _ = stopped.await;
        };
        serve(listener, shared, settings, stop).await;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let thread = std::thread::spawn(move || runtime.block_on(run));
    Server { address: address.recv().unwrap(), engine, fates, stop: Some(stop), thread: Some(thread) }
}

impl Server {
    /// What the engine was asked to do next.
    pub fn fate(&self) -> Fate {
        self.fates.recv_timeout(std::time::Duration::from_secs(120)).unwrap()
    }

    /// The id of the request that was submitted next.
    pub fn submitted(&self) -> scripted::RequestSeen {
        match self.fate() {
            Fate::Submitted(seen) => *seen,
            other => panic!("{other:?}"),
        }
    }

    /// Asks the server to stop.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            _ = stop.send(());
        }
    }

    /// Stops it and waits for its end.
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
