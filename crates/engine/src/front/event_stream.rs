//! A request's events, as its client receives them.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout_at};

use super::output_processor::CancelOnDrop;
use crate::error::Failure;
use crate::event::Event;

/// How much later than the engine the client's side ends a request whose time has passed. The engine, which ends it between
/// two steps, knows better what became of it.
const GRACE: Duration = Duration::from_millis(500);

/// A request's events, as its client receives them. Dropping it cancels the request.
///
/// The channel is unbounded because the request is bounded: it holds at most one event per token.
pub struct EventStream {
    id: String,
    events: UnboundedReceiver<Event>,
    limit: Option<TimeLimit>,
    _cancel_on_drop: CancelOnDrop,
}

/// When a request ends whatever the engine does.
#[derive(Debug, Clone, Copy)]
struct TimeLimit {
    seconds: f64,
    at: Instant,
}

impl TimeLimit {
    /// From now on. One that is beyond the clock's range is none.
    fn new(seconds: f64) -> Option<Self> {
        let limit = Duration::try_from_secs_f64(seconds).ok()?;
        Some(Self { seconds, at: Instant::now().checked_add(limit)?.checked_add(GRACE)? })
    }
}

impl EventStream {
    /// The events of a request that has so many seconds from now.
    pub(super) fn new(
        id: String,
        events: UnboundedReceiver<Event>,
        timeout_s: Option<f64>,
        cancel_on_drop: CancelOnDrop,
    ) -> Self {
        Self { id, events, limit: timeout_s.and_then(TimeLimit::new), _cancel_on_drop: cancel_on_drop }
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next event; `None` after the last. A request with a time limit fails soon after it, even while the engine's
    /// process hangs; it is awaited in a Tokio runtime with timers.
    pub async fn next(&mut self) -> Option<Event> {
        let Some(TimeLimit { seconds, at }) = self.limit else { return self.events.recv().await };
        match timeout_at(at, self.events.recv()).await {
            Ok(event) => event,
            Err(_) => {
                self.limit = None;
                self.events.close();
                // What came since is behind the end.
                while self.events.try_recv().is_ok() {}
                tracing::warn!(
                    request_id = self.id,
                    "the engine did not end a request whose time has passed"
                );
                Some(Event::Failed(Failure::Timeout { after_s: seconds }))
            }
        }
    }

    /// The next event, for threads that may block; `None` after the last. Only the engine ends a request whose time has
    /// passed.
    pub fn blocking_next(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::message::{Command, CommandSender, JobId};

    /// A stream of job 7 whose time has passed, the engine's end of it, and the jobs that were cancelled.
    fn stream() -> (EventStream, tokio::sync::mpsc::UnboundedSender<Event>, Arc<Mutex<Vec<JobId>>>) {
        let cancelled = Arc::<Mutex<Vec<JobId>>>::default();
        let sent = Arc::clone(&cancelled);
        let commands = CommandSender::new(move |command| {
            if let Command::Cancel(job) = command {
                sent.lock().unwrap().push(job);
            }
            Ok(())
        });
        let (engine, events) = unbounded_channel();
        let cancel_on_drop = CancelOnDrop { jobs: vec![JobId(7)], commands };
        let mut stream = EventStream::new("a".to_owned(), events, Some(2.0), cancel_on_drop);
        stream.limit = stream.limit.map(|limit| TimeLimit { at: Instant::now(), ..limit });
        (stream, engine, cancelled)
    }

    #[tokio::test]
    async fn a_request_ends_after_its_limit_while_the_engine_is_silent() {
        let (mut stream, engine, cancelled) = stream();
        assert!(matches!(stream.next().await, Some(Event::Failed(Failure::Timeout { after_s: 2.0 }))));
        assert!(engine.send(Event::Progress { processed_tokens: 1 }).is_err(), "nothing follows the end");
        assert!(stream.next().await.is_none());
        drop(stream);
        assert_eq!(*cancelled.lock().unwrap(), [JobId(7)]);
    }

    #[tokio::test]
    async fn what_the_engine_has_sent_comes_before_the_limit() {
        let (mut stream, engine, _) = stream();
        assert!(engine.send(Event::Failed(Failure::unavailable("stopping"))).is_ok());
        assert!(matches!(stream.next().await, Some(Event::Failed(Failure::Unavailable { .. }))));
        drop(engine);
        assert!(stream.next().await.is_none());
    }

    #[test]
    fn a_limit_beyond_the_clocks_range_is_none() {
        assert!(
            [1e300, f64::INFINITY, f64::NAN].into_iter().all(|seconds| TimeLimit::new(seconds).is_none())
        );
    }
}
