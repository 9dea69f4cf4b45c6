//! Threads that compile grammars, so that one that takes long delays no step.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use omnibus_grammar::{Compiler, GrammarError, GrammarLimits, MatchState, Matcher, TokenMask, Vocabulary};
use omnibus_model::Source;

use crate::front::tokenizer_of;
use crate::message::{Job, JobGrammar, JobId};

/// Grammars that are compiled at once; a slow one holds up one thread.
const THREADS: usize = 2;
/// Parsers of grammars recurse, within the limit of depth.
const STACK_BYTES: usize = 64 << 20;

/// A matcher that has taken the job's tokens, and the mask of the next one.
pub(in crate::worker) struct Prepared {
    pub(in crate::worker) matcher: Box<Matcher>,
    pub(in crate::worker) mask: TokenMask,
    /// Whether anything may follow the tokens that the job has already.
    pub(in crate::worker) state: MatchState,
}

/// What becomes of a job's grammar.
pub(super) enum CompileEvent {
    /// A thread compiles it from now on.
    Began(JobId),
    Done(JobId, Result<Prepared, GrammarError>),
}

/// Compiles grammars. The threads start with the first one, and end when this is dropped.
pub(super) struct CompileThreads {
    shared: Arc<Shared>,
    tasks: Option<Sender<Task>>,
    events: Receiver<CompileEvent>,
    events_tx: Sender<CompileEvent>,
}

struct Shared {
    source: Source,
    vocab: usize,
    limits: GrammarLimits,
    /// Copies of a compiled grammar, for as many threads that compute masks.
    copies: usize,
    compiler: OnceLock<Result<Compiler, GrammarError>>,
    abandoned: Mutex<BTreeSet<JobId>>,
}

struct Task {
    job: JobId,
    grammar: JobGrammar,
    /// Tokens of the answer so far.
    tokens: Vec<u32>,
    stop_tokens: Vec<u32>,
}

impl CompileThreads {
    pub(super) fn new(source: Source, vocab: usize, limits: GrammarLimits, copies: usize) -> Self {
        let (events_tx, events) = channel();
        let shared =
            Shared { source, vocab, limits, copies, compiler: OnceLock::new(), abandoned: Mutex::default() };
        Self { shared: Arc::new(shared), tasks: None, events, events_tx }
    }

    /// Starts to compile a job's grammar.
    pub(super) fn start(&mut self, job: &Job) {
        let Some(grammar) = job.grammar.clone() else { return };
        let tokens = job.request.prompt.get(job.prompt..).unwrap_or_default().to_vec();
        let task = Task { job: job.id, grammar, tokens, stop_tokens: job.stop_tokens.clone() };
        let (shared, events) = (&self.shared, &self.events_tx);
        let tasks = self.tasks.get_or_insert_with(|| start_threads(shared, events));
        // Without a thread the job is late.
        let _no_threads = tasks.send(task);
    }

    /// What happened since the last call.
    pub(super) fn take_events(&mut self) -> Vec<CompileEvent> {
        let events: Vec<CompileEvent> = self.events.try_iter().collect();
        if !events.is_empty() {
            let mut abandoned = self.shared.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
            for event in &events {
                if let CompileEvent::Done(job, _) = event {
                    abandoned.remove(job);
                }
            }
        }
        events
    }

    /// A job's grammar is not needed any more.
    pub(super) fn abandon(&self, job: JobId) {
        self.shared.abandoned.lock().unwrap_or_else(PoisonError::into_inner).insert(job);
    }

    /// Whether the tables of the model's tokens are built. The first grammar waits for them.
    pub(super) fn has_tables(&self) -> bool {
        self.shared.compiler.get().is_some()
    }

    /// Grammars that were found in the cache.
    pub(super) fn cache_hits(&self) -> u64 {
        let compiler = self.shared.compiler.get().and_then(|compiler| compiler.as_ref().ok());
        compiler.map_or(0, Compiler::cache_hits)
    }
}

fn start_threads(shared: &Arc<Shared>, events: &Sender<CompileEvent>) -> Sender<Task> {
    let (tasks, queue) = channel();
    let queue = Arc::new(Mutex::new(queue));
    for at in 0..THREADS {
        let (queue, shared, events) = (Arc::clone(&queue), Arc::clone(shared), events.clone());
        let thread =
            std::thread::Builder::new().name(format!("omnibus-grammar-{at}")).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || work(&queue, &shared, &events)) {
            tracing::error!(%error, "cannot start a thread for grammars");
        }
    }
    tasks
}

fn work(queue: &Mutex<Receiver<Task>>, shared: &Shared, events: &Sender<CompileEvent>) {
    loop {
        let task = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return };
        if shared.abandoned.lock().unwrap_or_else(PoisonError::into_inner).remove(&task.job) {
            continue;
        }
        let _loop_ended = events.send(CompileEvent::Began(task.job));
        let result = shared.prepare(&task);
        let _loop_ended = events.send(CompileEvent::Done(task.job, result));
    }
}

impl Shared {
    fn prepare(&self, task: &Task) -> Result<Prepared, GrammarError> {
        let compiler = self.compiler.get_or_init(|| self.compiler()).as_ref().map_err(Clone::clone)?;
        let compiled = compiler.compile(&task.grammar.grammar, self.copies)?;
        let mut matcher = Box::new(Matcher::new(&compiled, &task.grammar.opening, &task.stop_tokens));
        let mut state = MatchState::Open;
        for token in &task.tokens {
            if state == MatchState::Finished {
                break;
            }
            state = matcher.accept(*token)?;
        }
        let mask = match state {
            MatchState::Open => matcher.mask().inspect_err(|_| compiler.evict(&compiled))?,
            MatchState::Finished => TokenMask::none(self.vocab),
        };
        Ok(Prepared { matcher, mask, state })
    }

    fn compiler(&self) -> Result<Compiler, GrammarError> {
        let tokenizer = tokenizer_of(&self.source)
            .map_err(|error| GrammarError { path: String::new(), message: error.to_string() })?;
        Compiler::new(Vocabulary::new(tokenizer, self.vocab), self.limits.clone())
    }
}
