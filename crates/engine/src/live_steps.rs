//! Steps as they happen, for clients that look at the engine.
//!
//! Invariant: the loop records nothing unless a [`StepWatch`] requested it within
//! [`WATCH_TIME`](crate::step_record::WATCH_TIME). A watch that is not read loses steps, which are counted; it holds nothing up.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender, channel};

use crate::message::{Command, WeakCommandSender};
use crate::step_record::StepRecord;

/// How often a watch requests them again.
const RENEWAL: Duration = Duration::from_secs(1);
/// Steps that a watch may be behind.
const KEPT_STEPS: usize = 2048;
/// Most steps that a watch hands out at once.
const STEPS_MAX: usize = 256;

/// Steps in their order.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WatchedSteps {
    /// Since the last ones.
    pub steps: Vec<StepRecord>,
    /// How many before them were lost, because the watch was not read.
    pub lost: u64,
}

/// Hands each step to all watches of a model.
#[derive(Default)]
pub(crate) struct StepFeed(Mutex<Option<Sender<StepRecord>>>);

impl StepFeed {
    /// The steps from now on.
    pub(crate) fn subscribe(&self) -> Receiver<StepRecord> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.get_or_insert_with(|| channel(KEPT_STEPS).0).subscribe()
    }

    /// Hands steps out. What was kept for watches is given back with the last of them.
    pub(crate) fn send(&self, steps: Vec<StepRecord>) {
        if steps.is_empty() {
            return;
        }
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(watched) = &*sender else { return };
        if steps.into_iter().any(|step| watched.send(step).is_err()) {
            *sender = None;
        }
    }

    /// Ends all watches.
    pub(crate) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The steps of a model's engine from now on. Dropping it ends their recording within seconds.
pub struct StepWatch {
    steps: Receiver<StepRecord>,
    commands: WeakCommandSender,
    requested_at: Option<Instant>,
    lost: u64,
}

impl StepWatch {
    pub(crate) fn new(steps: Receiver<StepRecord>, commands: WeakCommandSender) -> Self {
        Self { steps, commands, requested_at: None, lost: 0 }
    }

    /// The next steps, as soon as there are any; `None` once the engine has stopped. Needs a tokio runtime with timers.
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<WatchedSteps> {
        loop {
            self.renew()?;
            match tokio::time::timeout(RENEWAL, self.steps.recv()).await {
                Ok(Ok(step)) => return Some(self.with_more(step)),
                Ok(Err(RecvError::Lagged(lost))) => self.lost += lost,
                Ok(Err(RecvError::Closed)) => return None,
                Err(_silent) => {}
            }
        }
    }

    /// Requests that steps are recorded, if that is due. `None` once the engine has stopped.
    fn renew(&mut self) -> Option<()> {
        if self.requested_at.is_none_or(|at| at.elapsed() >= RENEWAL) {
            self.commands.send(Command::WatchSteps).ok()?;
            self.requested_at = Some(Instant::now());
        }
        Some(())
    }

    /// A step and those that have come since, as far as none between them is lost.
    fn with_more(&mut self, first: StepRecord) -> WatchedSteps {
        let (mut steps, lost) = (vec![first], std::mem::take(&mut self.lost));
        while steps.len() < STEPS_MAX {
            match self.steps.try_recv() {
                Ok(step) => steps.push(step),
                Err(TryRecvError::Lagged(lost)) => {
                    self.lost += lost;
                    break;
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        WatchedSteps { steps, lost }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::error::Disconnected;
    use crate::message::CommandSender;

    fn step(decodes: usize) -> StepRecord {
        StepRecord { decodes, ..StepRecord::default() }
    }

    /// A feed, its watch, the engine's sender, and what it was sent.
    fn watched() -> (StepFeed, StepWatch, CommandSender, mpsc::Receiver<Command>) {
        let (sent, commands) = mpsc::channel();
        let sender = CommandSender::new(move |command| sent.send(command).map_err(|_| Disconnected));
        let feed = StepFeed::default();
        let watch = StepWatch::new(feed.subscribe(), sender.downgrade());
        (feed, watch, sender, commands)
    }

    fn next(watch: &mut StepWatch) -> Option<WatchedSteps> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(watch.next())
    }

    #[test]
    fn steps_are_requested_and_come_in_order() {
        let (feed, mut watch, _engine, commands) = watched();
        feed.send(vec![step(1), step(2)]);
        let steps = vec![step(1), step(2)];
        assert_eq!(next(&mut watch), Some(WatchedSteps { steps, lost: 0 }));
        assert_eq!(commands.try_iter().collect::<Vec<_>>(), [Command::WatchSteps]);
    }

    #[test]
    fn a_watch_that_is_not_read_loses_the_oldest_steps_and_knows_how_many() {
        let (feed, mut watch, _engine, _commands) = watched();
        feed.send((0..KEPT_STEPS + 5).map(step).collect());
        let mut found = next(&mut watch).unwrap();
        assert_eq!((found.lost, found.steps[0], found.steps.len()), (5, step(5), STEPS_MAX));
        while found.steps.last() != Some(&step(KEPT_STEPS + 4)) {
            found = next(&mut watch).unwrap();
            assert_eq!(found.lost, 0);
        }
    }

    #[test]
    fn without_a_watch_nothing_is_kept() {
        let feed = StepFeed::default();
        feed.send(vec![step(1)]);
        assert!(feed.0.lock().unwrap().is_none());
        drop(feed.subscribe());
        feed.send(vec![step(1)]);
        assert!(feed.0.lock().unwrap().is_none());
    }

    #[test]
    fn a_watch_ends_with_the_engine() {
        let (feed, mut watch, _engine, _commands) = watched();
        feed.close();
        assert_eq!(next(&mut watch), None);
        let (_feed, mut watch, engine, _commands) = watched();
        drop(engine);
        assert_eq!(next(&mut watch), None);
    }
}
