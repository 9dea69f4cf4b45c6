//! An engine without a front, for benchmarks: token ids in, and what each report says with the time it was sent.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use omnibus_core as core;
use omnibus_model::Source;

use crate::error::{Disconnected, Failure, StartError};
use crate::memory_plan::MemoryPlan;
use crate::message::{Command, Job, JobId, JobUpdate, Ready, Report};
use crate::request::Sampling;
use crate::settings::Settings;
use crate::speculation::Speculation;
use crate::stats::Stats;
use crate::worker::{self, Own};

/// A running loop. Dropping it stops the loop and waits for its end.
pub struct TokenEngine {
    commands: Sender<Command>,
    /// The process must not exit before it has ended.
    thread: Option<JoinHandle<()>>,
    ready: Ready,
    /// Requests so far.
    requests: u64,
}

/// A greedy request that nothing but its limit ends.
#[derive(Debug, Clone, Default)]
pub struct TokenRequest {
    /// At least one token.
    pub prompt: Vec<u32>,
    /// Tokens of the answer.
    pub max_new_tokens: usize,
    /// Zero for none.
    pub adapter: u128,
    /// Only requests of equal salt share blocks and recent answers.
    pub cache_salt: u128,
    /// Whether it may have draft tokens.
    pub speculation: Speculation,
    /// The answer that counts as sampled, with [`DraftOutcome::Recorded`](crate::DraftOutcome::Recorded).
    pub recorded: Vec<u32>,
}

/// What the loop reports after an iteration.
#[derive(Debug, Clone)]
pub struct TokenReport {
    /// When the loop sent it.
    pub at: Instant,
    /// What happened to requests, in order.
    pub updates: Vec<(u64, TokenUpdate)>,
    /// Statistics, when they are due.
    pub stats: Option<Stats>,
}

/// What happened to a request.
#[derive(Debug, Clone)]
pub enum TokenUpdate {
    /// Its first step is about to be launched.
    Started,
    /// A token was sampled.
    Token,
    /// It has finished.
    Finished,
    /// It failed.
    Failed(Failure),
}

impl TokenEngine {
    /// Loads the model on a thread of this process. `on_report` is called on that thread; the loop ends when it returns
    /// false.
    pub fn start(
        source: Source,
        settings: Settings,
        mut on_report: impl FnMut(TokenReport) -> bool + Send + 'static,
    ) -> Result<Self, StartError> {
        let (commands, inbox) = channel();
        let report_tx = Box::new(move |report| match on_report(token_report(report)) {
            true => Ok(()),
            false => Err(Disconnected),
        });
        let (ready, thread) = worker::start(source, Own { settings, ..Own::default() }, inbox, report_tx)?;
        Ok(Self { commands, thread: Some(thread), ready, requests: 0 })
    }

    /// Queues a request, and returns its number. Fails when the loop has ended.
    pub fn submit(&mut self, request: TokenRequest) -> Result<u64, Failure> {
        let number = self.requests;
        self.requests += 1;
        let TokenRequest { prompt, max_new_tokens, adapter, cache_salt, speculation, recorded } = request;
        let job = Job {
            id: JobId(number),
            prompt: prompt.len(),
            request: core::Request { adapter, cache_salt, ..core::Request::new(prompt, max_new_tokens) },
            sampling: Sampling { seed: Some(number), ..Sampling::greedy() },
            stop_tokens: Vec::new(),
            min_tokens: 0,
            xtc_kept: Vec::new(),
            dry_breakers: Vec::new(),
            logprobs: None,
            logprob_token_ids: Vec::new(),
            prompt_logprobs: None,
            logprob_start: 0,
            alignment: None,
            hidden: None,
            token_logits: Vec::new(),
            unattended: 0,
            grammar: None,
            speculation,
            progress: crate::request::ProgressReports::Off,
            prediction: recorded,
            media: Vec::new(),
            timeout_s: None,
        };
        self.send(Command::Submit(Box::new(job)))?;
        Ok(number)
    }

    /// Cancels a request. Statistics come with its end.
    pub fn cancel(&self, request: u64) -> Result<(), Failure> {
        self.send(Command::Cancel(JobId(request)))
    }

    fn send(&self, command: Command) -> Result<(), Failure> {
        self.commands.send(command).map_err(|_| Failure::unavailable("the engine's loop has ended"))
    }

    /// The model's `model_type`, and how its weights are packed.
    pub fn architecture(&self) -> (&str, Option<&str>) {
        (&self.ready.architecture, self.ready.quantization.as_deref())
    }

    /// How memory is divided.
    pub fn memory(&self) -> &MemoryPlan {
        &self.ready.memory
    }

    /// Longest sequence, in tokens.
    pub fn max_model_len(&self) -> usize {
        self.ready.max_model_len
    }

    /// Tokens in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.ready.vocab_size
    }

    /// Ids of the adapters that the settings name.
    pub fn adapters(&self) -> Vec<u128> {
        self.ready.adapters.iter().filter_map(|adapter| adapter.loaded).collect()
    }
}

impl Drop for TokenEngine {
    fn drop(&mut self) {
        let _ended_already = self.commands.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn token_report(Report { jobs, stats, .. }: Report) -> TokenReport {
    let at = Instant::now();
    let update = |update| match update {
        JobUpdate::Started { .. } => Some(TokenUpdate::Started),
        JobUpdate::Token(_) => Some(TokenUpdate::Token),
        JobUpdate::Finished(_) => Some(TokenUpdate::Finished),
        JobUpdate::Failed(failure) => Some(TokenUpdate::Failed(failure)),
        // Reports that need a field which these requests leave empty.
        JobUpdate::Progress { .. }
        | JobUpdate::Prompt { .. }
        | JobUpdate::Alignment(_)
        | JobUpdate::Hidden(_)
        | JobUpdate::TokenLogits(_)
        | JobUpdate::Drafted(_)
        | JobUpdate::Energy(_)
        | JobUpdate::Blocks(_) => None,
    };
    let updates = jobs.into_iter().filter_map(|report| Some((report.job.0, update(report.update)?)));
    TokenReport { at, updates: updates.collect(), stats: stats.map(|stats| stats.stats) }
}
