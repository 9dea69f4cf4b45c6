//! A loaded model: checks and tokenizes requests, and queues them at its engine.

mod adapters;
mod blocks;
mod pooling;
mod queries;
mod resolved;
mod scoring;
mod speech;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use omnibus_core::{self as core, Class, Goal};
use omnibus_grammar::{GrammarLimits, Opening};
use omnibus_text::AddSpecial;
pub use pooling::PoolingRun;
use resolved::{ModelLimits, Resolved};
pub use scoring::ScoringRun;

use super::active_requests::{ActiveRequests, Admission};
use super::adapters::ServedAdapters;
use super::bad_words;
use super::dry_breakers::DryBreakers;
use super::event_stream::EventStream;
use super::model_text::{ModelText, TokenizedPrompt};
use super::output_processor::{CancelOnDrop, RequestOutput};
use super::reasoning_budget::ReasoningBudget;
use super::session_names::SessionNames;
use crate::digest::digest;
use crate::error::Failure;
use crate::hidden::HiddenPositions;
use crate::info::{ModelDetails, ModelInfo, ModelState};
use crate::logits_processor::LogitsProcessors;
use crate::message::{Command, CommandSender, Job, JobGrammar, JobId, Ready};
use crate::model_source::ModelSource;
use crate::request::{OutputMode, ReasoningPlace, Request, Sampling};
use crate::sampler;
use crate::settings::{PrefixCache, Settings};
use crate::status::EngineStatus;

/// The parts of a started engine.
pub(crate) struct Started {
    pub(crate) text: ModelText,
    pub(crate) ready: Ready,
    pub(crate) commands: CommandSender,
    /// End when the engine has stopped.
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) requests: ActiveRequests,
    pub(crate) status: Arc<EngineStatus>,
    pub(crate) processors: LogitsProcessors,
}

/// A model whose engine runs. Dropping the last reference stops the engine and waits for its end.
pub(crate) struct LoadedModel {
    info: ModelInfo,
    limits: ModelLimits,
    text: ModelText,
    commands: CommandSender,
    /// End when the engine has stopped.
    threads: Vec<JoinHandle<()>>,
    requests: ActiveRequests,
    sessions: SessionNames,
    status: Arc<EngineStatus>,
    next_job: AtomicU64,
    draining: AtomicBool,
    max_queue: usize,
    seed: u64,
    timeout_s: Option<f64>,
    reasoning_budget: Option<usize>,
    grammar_limits: GrammarLimits,
    processors: LogitsProcessors,
    adapters: ServedAdapters,
    dry_breakers: DryBreakers,
    /// Whether prompts share the blocks of what they begin with.
    shares_prefixes: bool,
}

impl Drop for LoadedModel {
    fn drop(&mut self) {
        let _already_stopped = self.commands.send(Command::Stop);
        for thread in self.threads.drain(..) {
            let _panic_was_printed = thread.join();
        }
    }
}

impl LoadedModel {
    /// The model of a started engine.
    pub(crate) fn new(started: Started, source: &ModelSource, settings: &Settings) -> Self {
        let Started { text, ready, commands, threads, requests, status, processors } = started;
        let text = text.for_loaded(&ready);
        let capabilities = text.capabilities();
        let Ready { architecture, quantization, context_length, max_model_len, .. } = ready;
        let Ready { vocab_size, token_types, hidden_size, memory, adapters, .. } = ready;
        let Settings { max_logprobs, max_num_seqs, .. } = *settings;
        let limits = ModelLimits { vocab_size, token_types, max_model_len, max_logprobs, max_num_seqs };
        let mut names = source.names().into_iter();
        let info = ModelInfo {
            id: names.next().unwrap_or_default(),
            aliases: names.collect(),
            state: ModelState::Ready(ModelDetails {
                architecture,
                quantization,
                context_length,
                max_model_len,
                vocab_size,
                hidden_size,
                capabilities,
                memory,
                sampling: text.sampling.clone(),
                task: text.task(),
                modalities: text.modalities(),
                chat_template: text.template_hash(),
            }),
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            adapter: None,
        };
        Self {
            info,
            limits,
            text,
            commands,
            threads,
            requests,
            sessions: SessionNames::default(),
            status,
            next_job: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            max_queue: settings.max_queue,
            seed: settings.seed,
            timeout_s: settings.request_timeout_s,
            reasoning_budget: settings.reasoning_budget,
            grammar_limits: settings.grammar_limits.clone(),
            processors,
            adapters: ServedAdapters::new(adapters),
            dry_breakers: DryBreakers::default(),
            shares_prefixes: settings.prefix_cache == PrefixCache::On,
        }
    }

    /// Renders, tokenizes, checks and queues a request. Takes milliseconds of CPU for a long prompt: async callers run
    /// it on a thread that may block.
    pub(crate) fn submit(&self, request: Request) -> Result<EventStream, Failure> {
        let (request, model) = self.checked(request)?;
        let place = self.admit(request.class, &request.tenant)?;
        self.submit_checked(request, model, place)
    }

    /// Submits a request that has a place in the queue.
    pub(crate) fn submit_admitted(&self, request: Request, place: Admission) -> Result<EventStream, Failure> {
        let (request, model) = self.checked(request)?;
        self.submit_checked(request, model, place)
    }

    /// A request that may be queued, with its input in the form that the model's chat template supports, and its model.
    fn checked(&self, mut request: Request) -> Result<(Request, Resolved<'_>), Failure> {
        self.check_open()?;
        self.text.sampling.fill(&mut request);
        request.validate()?;
        self.text.check_generates(&request)?;
        if let Some(name) = request.sampling.processors.iter().find(|name| !self.processors.contains(name)) {
            let message = format!("the engine was started without a logits processor named `{name}`");
            return Err(Failure::bad_request("logits_processors", message));
        }
        if let Some(structured) = &request.structured {
            structured.validate(&self.grammar_limits)?;
        }
        let model = self.resolve(request.model.as_deref())?;
        request.input = model.text.adapt(request.input)?;
        Ok((request, model))
    }

    fn submit_checked(
        &self,
        request: Request,
        model: Resolved<'_>,
        place: Admission,
    ) -> Result<EventStream, Failure> {
        let id = self.next_id();
        let prompt = model.text.prompt(
            &request.input,
            AddSpecial::Yes,
            model.limits.max_model_len,
            salt(&request, id),
        )?;
        self.queue(id, (request, model), prompt, place)
    }

    /// Queues a request whose prompt is tokenized.
    fn queue(
        &self,
        id: JobId,
        (request, model): (Request, Resolved<'_>),
        prompt: TokenizedPrompt,
        admission: Admission,
    ) -> Result<EventStream, Failure> {
        if let Some(session) = &request.session_id {
            self.sessions.insert(&request.tenant, session, || self.list_sessions().ok());
        }
        let mut job = self.job(id, &request, &model, prompt)?;
        let Resolved { text, adapter, name, .. } = model;
        job.request.adapter = adapter.as_ref().map_or(0, |adapter| adapter.id);
        let (events_tx, events) = tokio::sync::mpsc::unbounded_channel();
        let output_text = text.output_text(&request, &job.request.prompt);
        let budget = self.reasoning_budget(&request, &job);
        let timeout_s = job.timeout_s;
        let jobs = std::iter::once(id).chain(budget.as_ref().map(ReasoningBudget::next_id)).collect();
        let output = RequestOutput::new(&request, (name, adapter), &job, (output_text, budget), events_tx);
        self.requests.insert(id, output, admission);
        tracing::debug!(request_id = request.id, job = id.0, prompt_tokens = job.prompt, "request queued");
        if self.commands.send(Command::Submit(Box::new(job))).is_err() {
            self.requests.remove(id);
            return Err(Failure::unavailable("the engine has stopped"));
        }
        let cancel_on_drop = CancelOnDrop { jobs, commands: self.commands.clone() };
        Ok(EventStream::new(request.id, events, timeout_s, cancel_on_drop))
    }
}

impl LoadedModel {
    /// Fails while no requests are taken.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(Failure::unavailable("it is shutting down"));
        }
        self.status.refusal().map_or(Ok(()), Err)
    }

    fn next_id(&self) -> JobId {
        JobId(self.next_job.fetch_add(1, Ordering::Relaxed))
    }

    /// A place in the queue for a tenant's request that is prepared before it is submitted. Fails while the queue is full or memory
    /// is short.
    pub(crate) fn admit(&self, class: Class, tenant: &str) -> Result<Admission, Failure> {
        if !self.status.admits() {
            return Err(Failure::Busy { retry_after_s: self.status.retry_after_s() });
        }
        let place = self.requests.admit(class, tenant, self.max_queue, self.status.running());
        place.ok_or_else(|| Failure::Busy { retry_after_s: self.status.retry_after_s() })
    }

    /// The limit on a request's reasoning, if it has one and the model reasons.
    fn reasoning_budget(&self, request: &Request, job: &Job) -> Option<ReasoningBudget> {
        if !matches!(request.output, OutputMode::Message { .. }) {
            return None;
        }
        let tokens = request.reasoning_budget.or(self.reasoning_budget)?;
        let next = self.next_id();
        Some(ReasoningBudget::new(tokens, self.text.reasoning_end()?, next, job))
    }

    /// The tokens that a request's client expects, no more than the context holds. It is a hint, so the rest is left out.
    fn prediction(&self, request: &Request, max_model_len: usize) -> Result<Vec<u32>, Failure> {
        let Some(text) = &request.prediction else { return Ok(Vec::new()) };
        let most = text.len().min(max_model_len.saturating_mul(PREDICTION_BYTES));
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let mut tokens = self.text.tokens_of(text.get(..end).unwrap_or_default(), "prediction")?;
        tokens.truncate(max_model_len);
        Ok(tokens)
    }

    /// The tokens that end a request, sorted.
    fn stop_tokens(&self, request: &Request) -> Vec<u32> {
        let mut tokens = request.stop.token_ids.clone();
        if !request.stop.ignore_eos {
            tokens.extend(self.text.tokenizer.eos_ids());
            tokens.extend(self.text.infill_ends(&request.input));
        }
        tokens.sort_unstable();
        tokens
    }

    /// Tokens that exclusion of the most likely ones never excludes: line breaks and ends.
    fn xtc_kept(&self, sampling: &Sampling, stop_tokens: &[u32]) -> Vec<u32> {
        if sampling.xtc_probability <= 0.0 {
            return Vec::new();
        }
        self.text.line_breaks().into_iter().chain(stop_tokens.iter().copied()).collect()
    }

    /// The tokens of each text that no repetition contains.
    fn dry_breakers(&self, sampling: &Sampling) -> Vec<Vec<u32>> {
        match sampling.dry.is_on() {
            true => self.dry_breakers.tokens(&self.text.tokenizer, &sampling.dry.breakers),
            false => Vec::new(),
        }
    }

    /// The request in tokens, checked against the model's sizes.
    fn job(
        &self,
        id: JobId,
        request: &Request,
        model: &Resolved<'_>,
        tokenized: TokenizedPrompt,
    ) -> Result<Job, Failure> {
        let max_new_tokens = model.limits.check(request, &tokenized.tokens)?;
        let mut sampling = request.sampling.clone();
        model.limits.check_tokens(request)?;
        model.limits.check_logprobs(request, &tokenized.tokens)?;
        sampling.seed = Some(sampling.seed.unwrap_or_else(|| sampler::fresh_seed(self.seed, id.0)));
        let words = bad_words::tokens(&self.text.tokenizer, &sampling.bad_words.texts);
        sampling.bad_words.tokens =
            words.map_err(|error| Failure::bad_request("bad_words", error.to_string()))?;
        let stop_tokens = self.stop_tokens(request);
        let xtc_kept = self.xtc_kept(&sampling, &stop_tokens);
        let dry_breakers = self.dry_breakers(&sampling);
        let structured = self.text.structured(request, &self.grammar_limits)?;
        let grammar = structured.map(|structured| JobGrammar {
            grammar: structured.grammar,
            opening: Opening {
                reasoning: match structured.reasoning {
                    ReasoningPlace::Before => self.text.reasoning(&request.input, &tokenized),
                    ReasoningPlace::Inside => None,
                },
                marker: structured.marker,
            },
            field: structured.field,
        });
        let prediction = self.prediction(request, model.limits.max_model_len)?;
        let messages = self.text.message_boundaries(&request.input, &tokenized);
        let (prompt, salt) = (tokenized.tokens.len(), salt(request, id));
        // Features are shared even where blocks are not.
        let media = tokenized.media.of_job(shared_salt(request));
        let marks = media.iter().map(|media| (media.first(), media.key.mark())).collect();
        let scheduled = core::Request {
            cache_salt: salt,
            mm_hashes: marks,
            boundaries: messages.ends,
            history: messages.history,
            ..scheduled(request, tokenized.tokens, goal(max_new_tokens))
        };
        Ok(Job {
            id,
            request: scheduled,
            prompt,
            sampling,
            stop_tokens,
            min_tokens: request.stop.min_tokens,
            xtc_kept,
            dry_breakers,
            logprobs: request.logprobs,
            logprob_token_ids: request.logprob_token_ids.clone(),
            prompt_logprobs: request.prompt_logprobs,
            logprob_start: request.logprob_start,
            alignment: request.alignment.clone(),
            hidden: request.hidden,
            token_logits: request.token_logits.clone(),
            unattended: request.unattended,
            grammar,
            speculation: request.speculation,
            progress: request.progress,
            prediction,
            media,
            timeout_s: request.timeout_s.or(self.timeout_s),
        })
    }
}

/// Bytes of a prediction for each token of the context: more of it is not looked at.
const PREDICTION_BYTES: usize = 16;

/// What the scheduler gets of a request besides its cache.
fn scheduled(request: &Request, prompt: Vec<u32>, goal: Goal) -> core::Request {
    core::Request {
        class: request.class,
        priority: request.priority,
        // Half is enough: the server chooses the tenants' names.
        tenant: digest(&[b"tenant", request.tenant.as_bytes()]) as u64,
        session: request.session_id.as_deref().map(|id| SessionNames::number(&request.tenant, id)),
        max_cached_tokens: max_cached_tokens(request),
        ..core::Request::with_goal(prompt, goal)
    }
}

/// A request that may generate nothing only computes its prompt.
fn goal(max_new_tokens: usize) -> Goal {
    match max_new_tokens {
        0 => Goal::Compute,
        max_new_tokens => Goal::Generate { max_new_tokens },
    }
}

/// Most tokens of a prompt whose blocks a request may share: those before the ones that it reports something of.
fn max_cached_tokens(request: &Request) -> usize {
    match request.prompt_logprobs {
        Some(_) => request.logprob_start.saturating_sub(1),
        None => usize::MAX,
    }
}

/// Requests of equal tenant and salt share blocks. A request with log-probabilities of its whole prompt, an alignment or
/// all hidden states shares none, because cached blocks have none of these.
fn salt(request: &Request, id: JobId) -> u128 {
    let reports_all = matches!(request.hidden, Some(HiddenPositions::All | HiddenPositions::Vocabulary));
    let scores_all = request.prompt_logprobs.is_some() && request.logprob_start == 0;
    if scores_all || request.alignment.is_some() || reports_all {
        return digest(&[b"unshared", &id.0.to_le_bytes()]);
    }
    shared_salt(request)
}

fn shared_salt(request: &Request) -> u128 {
    let own = || salt_of(&request.tenant, request.cache_salt.as_deref().unwrap_or_default());
    request.cache_namespace.unwrap_or_else(own)
}

fn salt_of(tenant: &str, cache_salt: &str) -> u128 {
    digest(&[b"salt", tenant.as_bytes(), cache_salt.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that chooses its salt so that FNV-1a gives another tenant's number gets its own.
    #[test]
    fn salts_that_collide_under_fnv_are_separate() {
        let [tenant, salt, victim] = crate::digest::tests::salt_collision();
        assert_ne!(salt_of(tenant, salt), salt_of(victim, ""));
    }
}
