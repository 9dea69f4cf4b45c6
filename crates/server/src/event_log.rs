//! The frames of a response that is streamed in the background, for every client that reads it.
//!
//! Invariant: a reader never holds up the response. A log is bounded by the token limits of its response.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt, stream};
use tokio::sync::watch;

use crate::response::Frame;

/// Most logs that are kept.
const LOGS_MAX: usize = 256;
/// Most bytes of all logs, as far as the newest allows.
const BYTES_MAX: usize = 64 << 20;

/// The logs of the responses that were streamed in the background last.
#[derive(Debug, Default)]
pub struct EventLogs(Mutex<VecDeque<(String, Arc<EventLog>)>>);

impl EventLogs {
    /// The log of a new response. The oldest logs are dropped when there are too many.
    pub fn open(&self, id: &str) -> Arc<EventLog> {
        let log = Arc::new(EventLog::default());
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.push_back((id.to_owned(), Arc::clone(&log)));
        let mut bytes: usize = logs.iter().map(|(_, log)| log.bytes()).sum();
        while logs.len() > LOGS_MAX || (bytes > BYTES_MAX && logs.len() > 1) {
            let Some((_, oldest)) = logs.pop_front() else { break };
            bytes = bytes.saturating_sub(oldest.bytes());
        }
        log
    }

    /// The log of a response.
    pub fn get(&self, id: &str) -> Option<Arc<EventLog>> {
        let logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.iter().find(|(other, _)| other == id).map(|(_, log)| Arc::clone(log))
    }

    /// Drops the log of a response.
    pub fn remove(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| other != id);
    }
}

/// The frames of one response so far.
#[derive(Debug)]
pub struct EventLog {
    frames: Mutex<Vec<Frame>>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    frames: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

impl Default for EventLog {
    fn default() -> Self {
        Self {
            frames: Mutex::default(),
            progress: watch::Sender::new(Progress { frames: 0, state: State::Open }),
        }
    }
}

impl EventLog {
    fn push(&self, frame: Frame) {
        let frames = {
            let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
            frames.push(frame);
            frames.len()
        };
        self.progress.send_modify(|progress| progress.frames = frames);
    }

    fn close(&self) {
        self.progress.send_modify(|progress| progress.state = State::Closed);
    }

    /// About how many bytes it takes.
    fn bytes(&self) -> usize {
        let frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        frames.iter().map(|frame| 64 + frame.data.len()).sum()
    }

    /// Appends frames until there are no more.
    pub async fn record(&self, frames: impl Stream<Item = Frame>) {
        let mut frames = std::pin::pin!(frames);
        while let Some(frame) = frames.next().await {
            self.push(frame);
        }
        self.close();
    }

    /// The frames from this one on, those to come included.
    pub fn read(self: &Arc<Self>, from: usize) -> impl Stream<Item = Frame> + Send + use<> {
        let (log, progress) = (Arc::clone(self), self.progress.subscribe());
        stream::unfold((log, progress, from), async |(log, mut progress, at)| {
            loop {
                let seen = *progress.borrow_and_update();
                if at < seen.frames {
                    let frame = log.frame(at)?;
                    return Some((frame, (log, progress, at + 1)));
                }
                if seen.state == State::Closed {
                    return None;
                }
                progress.changed().await.ok()?;
            }
        })
    }

    fn frame(&self, at: usize) -> Option<Frame> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).get(at).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(data: usize) -> Frame {
        Frame { event: None, data: data.to_string() }
    }

    #[tokio::test]
    async fn readers_get_what_was_and_what_comes() {
        let log = Arc::new(EventLog::default());
        (0..3).for_each(|at| log.push(frame(at)));
        let (all, late) = (log.read(0), log.read(2));
        let writer = tokio::spawn({
            let log = Arc::clone(&log);
            async move {
                for at in 3..50 {
                    tokio::task::yield_now().await;
                    log.push(frame(at));
                }
                log.close();
            }
        });
        let data = async |stream: std::pin::Pin<Box<dyn Stream<Item = Frame>>>| {
            stream.map(|frame| frame.data).collect::<Vec<String>>().await
        };
        let expected = |from: usize| (from..50).map(|at| at.to_string()).collect::<Vec<String>>();
        assert_eq!(data(Box::pin(all)).await, expected(0));
        assert_eq!(data(Box::pin(late)).await, expected(2));
        writer.await.unwrap();
        assert_eq!(data(Box::pin(log.read(48))).await, expected(48));
        assert_eq!(data(Box::pin(log.read(99))).await, expected(50));
    }
}
