//! The grammars of running sequences: compiled, and with the mask of the next token computed ahead on other threads.
//!
//! A job with a grammar waits here until the grammar is compiled, and is then submitted to the scheduler. From then on its
//! matcher takes each token right after it was sampled, and a thread computes the next mask while the loop plans and the
//! device runs the next forward pass; the loop waits for the mask just before it builds the sampling.
//!
//! Invariant: a matcher's state follows from the sequence's tokens. After a failure of the loop or of the process it is
//! made again from them.

mod compile;
mod compiling;
mod tasks;
mod threads;

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use omnibus_core::SequenceId;
use omnibus_grammar::{Forced, GrammarError, GrammarLimits, MatchState, Matcher, TokenMask};
use omnibus_model::Source;

use crate::error::Failure;
use crate::message::{Job, JobId};
use crate::request::refused;
use crate::stats::GrammarStats;
pub(super) use compile::Prepared;
use compile::{CompileEvent, CompileThreads};
use compiling::Compiling;
use threads::{Computed, MaskThreads, threads};

/// The loop waits so long for a mask at most; then the sequence fails. The grammar's limits make this unlikely.
const MASK_TIMEOUT: Duration = Duration::from_secs(2);
/// The first grammar waits so long at most for the tables of the model's tokens, besides the limit on its own time.
const TABLES_TIMEOUT: Duration = Duration::from_secs(60);

/// The grammars of all sequences that have one.
pub(super) struct Grammars {
    compile: CompileThreads,
    masks: MaskThreads,
    limit: Duration,
    /// When the first job with a grammar came.
    since: Option<Instant>,
    /// Jobs whose grammar is being compiled.
    compiling: Compiling<Job>,
    sequences: BTreeMap<SequenceId, Slot>,
    /// Matchers that took a token since masks were started last. Sequences of one grammar share its lexer, so masks are
    /// started when all tokens of a step are taken: else taking one would wait for the mask of another.
    accepted: Vec<(SequenceId, Box<Matcher>)>,
    stats: GrammarStats,
}

/// A job whose grammar is compiled, with its matcher, or why it was refused.
pub(super) type CompiledJob = (Job, Result<Prepared, Failure>);

/// The matcher of a sequence.
enum Slot {
    Computing(Receiver<Computed>),
    /// Of the next token. The mask stays until that is sampled: a step may fail and run again.
    Ready(Box<Matcher>, TokenMask),
    Failed(String),
}

impl Grammars {
    pub(super) fn new(source: &Source, vocab: usize, limits: &GrammarLimits) -> Self {
        let (masks, limit) = (threads(), Duration::from_millis(limits.compile_ms));
        Self {
            compile: CompileThreads::new(source.clone(), vocab, limits.clone(), masks),
            masks: MaskThreads::new(masks),
            limit,
            since: None,
            compiling: Compiling::new(limit),
            sequences: BTreeMap::new(),
            accepted: Vec::new(),
            stats: GrammarStats::default(),
        }
    }

    /// Compiles a job's grammar. It comes back by [`Self::take_compiled`].
    pub(super) fn compile(&mut self, job: Job) {
        self.since.get_or_insert_with(Instant::now);
        self.compile.start(&job);
        self.stats.compiled_total += 1;
        self.compiling.insert(job.id, job, Instant::now());
    }

    /// Jobs whose grammar is compiled, or has taken too long.
    pub(super) fn take_compiled(&mut self) -> Vec<CompiledJob> {
        let (mut done, now) = (Vec::new(), Instant::now());
        for event in self.compile.take_events() {
            let (id, result) = match event {
                CompileEvent::Began(id) => {
                    self.compiling.begin(id, now);
                    continue;
                }
                CompileEvent::Done(id, result) => (id, result),
            };
            let Some((job, waited)) = self.compiling.remove(id, now) else { continue };
            self.stats.compile_seconds_total += waited.as_secs_f64();
            let result = result.map_err(|error| self.refuse(&job, &error));
            done.push((job, result));
        }
        let in_time = self.since.is_some_and(|since| since.elapsed() < TABLES_TIMEOUT);
        if in_time && !self.compile.has_tables() {
            self.compiling.hold(now);
        }
        for (id, job) in self.compiling.take_late(now) {
            self.compile.abandon(id);
            let message = format!("the grammar is not compiled after {} ms", self.limit.as_millis());
            let error = GrammarError { path: String::new(), message };
            let failure = self.refuse(&job, &error);
            done.push((job, Err(failure)));
        }
        done
    }

    /// Whether a job waits for its grammar.
    pub(super) fn is_compiling(&self) -> bool {
        !self.compiling.is_empty()
    }

    /// Gives up a job that waits. `None` if it does not.
    pub(super) fn cancel(&mut self, id: JobId) -> Option<Job> {
        let (job, _) = self.compiling.remove(id, Instant::now())?;
        self.compile.abandon(id);
        Some(job)
    }

    /// A sequence has this grammar.
    pub(super) fn insert(&mut self, sequence: SequenceId, prepared: Prepared) {
        self.sequences.insert(sequence, Slot::Ready(prepared.matcher, prepared.mask));
    }

    /// Whether a sequence has a grammar.
    pub(super) fn contains(&self, sequence: SequenceId) -> bool {
        self.sequences.contains_key(&sequence)
    }

    /// The masks of those of these sequences that have a grammar, waiting for them: of the next token, and of those after
    /// each of the draft tokens that may follow. A sequence whose mask failed has none; its next token fails.
    pub(super) fn take_masks<'a>(
        &mut self,
        sequences: impl Iterator<Item = (SequenceId, &'a [u32])>,
    ) -> Vec<(SequenceId, Vec<TokenMask>)> {
        let mut masks = Vec::new();
        for (sequence, drafts) in sequences {
            let Some(slot) = self.sequences.remove(&sequence) else { continue };
            let started = Instant::now();
            let slot = wait(slot, &mut self.stats);
            self.stats.wait_seconds_total += started.elapsed().as_secs_f64();
            if let Slot::Ready(matcher, mask) = &slot {
                let after = if drafts.is_empty() { Vec::new() } else { matcher.masks_after(drafts, mask) };
                masks.push((sequence, [vec![mask.clone()], after].concat()));
            }
            self.sequences.insert(sequence, slot);
        }
        masks
    }

    /// How many of these draft tokens may follow in a sequence, as far as that is known without waiting.
    pub(super) fn valid_drafts(&mut self, sequence: SequenceId, drafts: &[u32]) -> usize {
        let Some(slot) = self.sequences.remove(&sequence) else { return drafts.len() };
        let mut slot = arrived(slot, &mut self.stats);
        let valid = match &mut slot {
            Slot::Ready(matcher, _) => matcher.valid_drafts(drafts),
            Slot::Computing(_) | Slot::Failed(_) => drafts.len(),
        };
        self.sequences.insert(sequence, slot);
        valid
    }

    /// Takes sampled tokens. How many of them there are up to the end of the text, the tokens that must follow, at most
    /// `most`, and whether the sequence ends with them. [`Self::start_masks`] must follow.
    pub(super) fn accept(
        &mut self,
        sequence: SequenceId,
        tokens: &[u32],
        most: usize,
    ) -> Result<(usize, Forced), GrammarError> {
        let Some(slot) = self.sequences.remove(&sequence) else {
            return Ok((tokens.len(), Forced { tokens: Vec::new(), state: MatchState::Open }));
        };
        let started = Instant::now();
        let mut matcher = match wait(slot, &mut self.stats) {
            Slot::Ready(matcher, _) => matcher,
            Slot::Failed(message) => return Err(self.fail(sequence, message)),
            Slot::Computing(_) => return Err(self.fail(sequence, "its mask is late".to_owned())),
        };
        let accepted = accept_all(&mut matcher, tokens, most);
        self.stats.accept_seconds_total += started.elapsed().as_secs_f64();
        let (taken, forced) = accepted.map_err(|error| self.fail(sequence, error.message))?;
        if forced.state == MatchState::Open {
            self.accepted.push((sequence, matcher));
        }
        Ok((taken, forced))
    }

    /// Starts to compute the next masks of all sequences that took a token.
    pub(super) fn start_masks(&mut self) {
        for (sequence, matcher) in self.accepted.drain(..) {
            self.sequences.insert(sequence, Slot::Computing(self.masks.start(matcher)));
        }
    }

    /// A sequence has ended. Why, if its grammar was the reason.
    pub(super) fn take_failure(&mut self, sequence: SequenceId) -> Option<String> {
        match self.sequences.remove(&sequence) {
            Some(Slot::Failed(message)) => Some(message),
            _ => None,
        }
    }

    /// All sequences are gone; they come back as jobs.
    pub(super) fn clear(&mut self) {
        self.sequences.clear();
        self.accepted.clear();
    }

    /// Counters.
    pub(super) fn stats(&self) -> GrammarStats {
        let hits = self.compile.cache_hits();
        GrammarStats { cache_hits_total: hits, sequences: self.sequences.len() as u64, ..self.stats }
    }

    fn refuse(&mut self, job: &Job, error: &GrammarError) -> Failure {
        self.stats.refused_total += 1;
        let field = job.grammar.as_ref().map_or("response_format", |grammar| &grammar.field);
        refused(field, error)
    }

    fn fail(&mut self, sequence: SequenceId, message: String) -> GrammarError {
        tracing::warn!(sequence = sequence.0, message, "a sequence's grammar failed");
        self.stats.failed_total += 1;
        self.sequences.insert(sequence, Slot::Failed(message.clone()));
        GrammarError { path: String::new(), message }
    }
}

/// Takes tokens up to the end of the text, and then those that must follow.
fn accept_all(matcher: &mut Matcher, tokens: &[u32], most: usize) -> Result<(usize, Forced), GrammarError> {
    for (taken, token) in (1..).zip(tokens) {
        if matcher.accept(*token)? == MatchState::Finished {
            return Ok((taken, Forced { tokens: Vec::new(), state: MatchState::Finished }));
        }
    }
    Ok((tokens.len(), matcher.take_forced(most)?))
}

/// Waits for a mask that is being computed.
fn wait(slot: Slot, stats: &mut GrammarStats) -> Slot {
    let Slot::Computing(computed) = slot else { return slot };
    match computed.recv_timeout(MASK_TIMEOUT) {
        Ok(computed) => slot_of(computed, stats),
        Err(_) => Slot::Failed("its mask took too long".to_owned()),
    }
}

/// A mask, if it is computed.
fn arrived(slot: Slot, stats: &mut GrammarStats) -> Slot {
    let Slot::Computing(computed) = slot else { return slot };
    match computed.try_recv() {
        Ok(computed) => slot_of(computed, stats),
        Err(_) => Slot::Computing(computed),
    }
}

fn slot_of(Computed { matcher, mask, seconds }: Computed, stats: &mut GrammarStats) -> Slot {
    stats.masks_total += 1;
    stats.mask_seconds_total += seconds;
    match mask {
        Ok(mask) => Slot::Ready(matcher, mask),
        Err(error) => Slot::Failed(error.message),
    }
}
