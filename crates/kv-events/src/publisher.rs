//! The thread that publishes.
//!
//! Invariant: [`Publisher::publish`] never waits. Batches leave in order, and a batch that was dropped leaves a gap in the
//! sequence numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use zeromq::{PubSocket, Socket, SocketSend, ZmqMessage};

use crate::event::{Event, batch};
use crate::settings::EventSettings;

/// Batches that wait for the thread. A batch has what one iteration of the engine's loop cached and evicted.
const QUEUE_BATCHES: usize = 1024;

/// The thread and its socket. Dropping it ends both.
#[derive(Debug)]
pub struct Publisher {
    batches: Sender<Batch>,
    sequence: u64,
    stats: Arc<Counters>,
}

#[derive(Debug)]
struct Batch {
    sequence: u64,
    timestamp: f64,
    events: Vec<Event>,
}

#[derive(Debug, Default)]
struct Counters {
    published: AtomicU64,
    dropped: AtomicU64,
}

/// Statistics of a publisher. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PublisherStats {
    /// Events given to the socket.
    pub published_total: u64,
    /// Events that found no room in the queue, or that the socket refused.
    pub dropped_total: u64,
}

impl Publisher {
    /// Listens, and starts the thread. An error names the endpoint.
    pub fn start(settings: &EventSettings) -> Result<Self, String> {
        let endpoint = settings.endpoint()?;
        let failed = |error: &dyn std::fmt::Display| format!("{endpoint}: {error}");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
        let socket = runtime.block_on(listen(&endpoint)).map_err(|error| failed(&error))?;
        let (batches, inbox) = channel(QUEUE_BATCHES);
        let stats = Arc::new(Counters::default());
        let thread = Thread {
            socket,
            topic: settings.topic.clone(),
            rank: settings.rank.into(),
            stats: Arc::clone(&stats),
        };
        let named = std::thread::Builder::new().name("omnibus-kv-events".to_owned());
        named.spawn(move || thread.run(&runtime, inbox)).map_err(|error| failed(&error))?;
        tracing::info!(endpoint, topic = settings.topic, "KV events are published");
        Ok(Self { batches, sequence: 0, stats })
    }

    /// Sends events in one batch, unless there are none or the queue is full.
    pub fn publish(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let (count, sequence) = (events.len() as u64, self.sequence);
        self.sequence += 1;
        let timestamp = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let batch = Batch { sequence, timestamp: timestamp.as_secs_f64(), events };
        if self.batches.try_send(batch).is_err() {
            self.stats.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Statistics.
    pub fn stats(&self) -> PublisherStats {
        PublisherStats {
            published_total: self.stats.published.load(Ordering::Relaxed),
            dropped_total: self.stats.dropped.load(Ordering::Relaxed),
        }
    }
}

async fn listen(endpoint: &str) -> zeromq::ZmqResult<PubSocket> {
    let mut socket = PubSocket::new();
    socket.bind(endpoint).await?;
    Ok(socket)
}

struct Thread {
    socket: PubSocket,
    topic: String,
    rank: u32,
    stats: Arc<Counters>,
}

impl Thread {
    fn run(mut self, runtime: &Runtime, mut inbox: Receiver<Batch>) {
        runtime.block_on(async {
            while let Some(batch) = inbox.recv().await {
                self.send(batch).await;
            }
        });
    }

    async fn send(&mut self, Batch { sequence, timestamp, events }: Batch) {
        let mut message = ZmqMessage::from(self.topic.clone());
        message.push_back(sequence.to_be_bytes().to_vec().into());
        message.push_back(batch(timestamp, &events, self.rank).into());
        let counter = match self.socket.send(message).await {
            Ok(()) => &self.stats.published,
            Err(_) => &self.stats.dropped,
        };
        counter.fetch_add(events.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (batches, mut inbox) = channel(1);
        let mut publisher = Publisher { batches, sequence: 0, stats: Arc::default() };
        for hash in 0..3 {
            publisher.publish(vec![Event::BlockRemoved(hash), Event::AllBlocksCleared]);
        }
        publisher.publish(Vec::new());
        assert_eq!(publisher.stats().dropped_total, 4);
        assert_eq!(inbox.try_recv().map(|batch| batch.sequence), Ok(0));
        publisher.publish(vec![Event::AllBlocksCleared]);
        assert_eq!(inbox.try_recv().map(|batch| batch.sequence), Ok(3), "a gap shows what was dropped");
    }

    #[test]
    fn an_address_that_is_taken_is_named() {
        let taken =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| Ok((socket.local_addr()?, socket)));
        let Ok((address, _socket)) = taken else { unreachable!("a port is free") };
        let error = EventSettings::of_endpoint(&format!("tcp://{address}"))
            .and_then(|at| Publisher::start(&at))
            .err();
        assert!(error.is_some_and(|error| error.contains(&address.to_string())));
    }
}
