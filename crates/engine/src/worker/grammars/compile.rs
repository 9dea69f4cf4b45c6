//! Threads that compile grammars, so that one that takes long delays no step.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use omnibus_grammar::{Compiler, GrammarError, GrammarLimits, MatchState, Matcher, TokenMask, Vocabulary};
use omnibus_model::Source;

use crate::front::tokenizer_of;
use crate::message::{Job, JobGrammar, JobId};

use super::tasks::Tasks;

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
    have_started: bool,
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
    tasks: Tasks<Task>,
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
        let (compiler, tasks) = (OnceLock::new(), Tasks::new());
        let shared = Shared { source, vocab, limits, copies, compiler, tasks };
        Self { shared: Arc::new(shared), have_started: false, events, events_tx }
    }

    /// Starts to compile a job's grammar.
    pub(super) fn start(&mut self, job: &Job) {
        let Some(grammar) = job.grammar.clone() else { return };
        let tokens = job.request.prompt.get(job.prompt..).unwrap_or_default().to_vec();
        let task = Task { job: job.id, grammar, tokens, stop_tokens: job.stop_tokens.clone() };
        // Without a thread the job is late.
        self.shared.tasks.push(job.request.tenant, task);
        if !std::mem::replace(&mut self.have_started, true) {
            start_threads(&self.shared, &self.events_tx);
        }
    }

    /// What happened since the last call.
    pub(super) fn take_events(&mut self) -> Vec<CompileEvent> {
        self.events.try_iter().collect()
    }

    /// A job's grammar is not needed any more. One that is being compiled is compiled to its end.
    pub(super) fn abandon(&self, job: JobId) {
        self.shared.tasks.retain(|task| task.job != job);
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

impl Drop for CompileThreads {
    fn drop(&mut self) {
        self.shared.tasks.close();
    }
}

fn start_threads(shared: &Arc<Shared>, events: &Sender<CompileEvent>) {
    for at in 0..THREADS {
        let (shared, events) = (Arc::clone(shared), events.clone());
        let thread =
            std::thread::Builder::new().name(format!("omnibus-grammar-{at}")).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || work(&shared, &events)) {
            tracing::error!(%error, "cannot start a thread for grammars");
        }
    }
}

fn work(shared: &Shared, events: &Sender<CompileEvent>) {
    while let Some(task) = shared.tasks.take() {
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
