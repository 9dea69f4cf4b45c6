//! Threads that compute masks.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use omnibus_grammar::{GrammarError, Matcher, TokenMask};

/// Most threads. A mask takes some ten microseconds, a step on a GPU some milliseconds.
const THREADS_MAX: usize = 8;

/// A mask, and the matcher that it is of.
pub(super) struct Computed {
    pub(super) matcher: Box<Matcher>,
    pub(super) mask: Result<TokenMask, GrammarError>,
    pub(super) seconds: f64,
}

/// Computes masks. The threads start with the first one, and end when this is dropped.
pub(super) struct MaskThreads {
    count: usize,
    tasks: Option<Sender<Task>>,
}

struct Task {
    matcher: Box<Matcher>,
    reply: std::sync::mpsc::SyncSender<Computed>,
}

/// How many threads compute masks: half of the cores, because the model computes meanwhile.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2).clamp(1, THREADS_MAX)
}

impl MaskThreads {
    pub(super) fn new(count: usize) -> Self {
        Self { count, tasks: None }
    }

    /// Starts to compute the mask of the next token.
    pub(super) fn start(&mut self, matcher: Box<Matcher>) -> Receiver<Computed> {
        let (reply, computed) = sync_channel(1);
        let count = self.count;
        let tasks = self.tasks.get_or_insert_with(|| start_threads(count));
        // Without a thread the reply's sender is dropped, and the sequence fails.
        let _no_threads = tasks.send(Task { matcher, reply });
        computed
    }
}

fn start_threads(count: usize) -> Sender<Task> {
    let (tasks, queue) = channel();
    let queue = Arc::new(Mutex::new(queue));
    for at in 0..count {
        let queue = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name(format!("omnibus-mask-{at}"));
        if let Err(error) = thread.spawn(move || work(&queue)) {
            tracing::error!(%error, "cannot start a thread for masks");
        }
    }
    tasks
}

fn work(queue: &Mutex<Receiver<Task>>) {
    loop {
        let task = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Task { mut matcher, reply }) = task else { return };
        let started = Instant::now();
        let mask = matcher.mask();
        let seconds = started.elapsed().as_secs_f64();
        let _sequence_ended = reply.send(Computed { matcher, mask, seconds });
    }
}
