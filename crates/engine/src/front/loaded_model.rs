//! The handle: submits requests to a running engine and queries it.

mod adapters;
mod speech;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use omnibus_core::{self as core, Goal};
use omnibus_grammar::{GrammarLimits, Opening};
use omnibus_text::AddSpecial;

use super::adapters::{AdapterUse, ServedAdapters};
use super::event_stream::EventStream;
use super::model_text::{ModelText, TokenizedPrompt};
use super::output_processor::{CancelOnDrop, RequestOutput};
use super::reasoning_budget::ReasoningBudget;
use super::session_names::SessionNames;
use crate::digest::digest;
use crate::logits_processor::LogitsProcessors;
use crate::message::{Answer, Command, CommandSender, Job, JobGrammar, JobId, QueryId, Ready};
use crate::model_source::ModelSource;
use crate::registry::{ActiveRequests, Admission};
use crate::request::{Input, OutputMode, ReasoningPlace, Request};
use crate::settings::Settings;
use crate::status::EngineStatus;
use crate::{Failure, Health, ModelInfo, RequestInfo, Sampling, SessionInfo, SessionStats, Stats, sampler};

/// A handle to a running engine. Clones share it. Dropping the last one stops the engine and waits for its end.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

/// The parts of a started engine.
pub(crate) struct Started {
    pub(crate) text: ModelText,
    pub(crate) ready: Ready,
    pub(crate) commands: CommandSender,
    /// Ends when the engine has stopped.
    pub(crate) thread: JoinHandle<()>,
    pub(crate) requests: ActiveRequests,
    pub(crate) status: Arc<EngineStatus>,
    pub(crate) processors: LogitsProcessors,
}

/// A request's model, found once by its name.
struct Resolved<'a> {
    text: &'a ModelText,
    adapter: Option<Arc<AdapterUse>>,
    /// As requests are listed.
    name: String,
    limits: ModelLimits,
}

/// What a model takes of a prompt.
#[derive(Debug, Clone, Copy)]
struct ModelLimits {
    /// Tokens below this.
    vocab_size: usize,
    /// Tokens of prompt and answer together.
    max_model_len: usize,
}

impl ModelLimits {
    /// Checks a request's prompt against them. The tokens that it may generate.
    fn check(self, request: &Request, prompt: &[u32]) -> Result<usize, Failure> {
        let Self { vocab_size, max_model_len } = self;
        let field = match request.input {
            Input::Chat(_) => "messages",
            Input::Text(_) | Input::Tokens(_) | Input::Infill { .. } => "prompt",
        };
        if prompt.is_empty() {
            return Err(Failure::bad_request(field, "the prompt has no tokens"));
        }
        if let Some(token) = prompt.iter().find(|token| **token as usize >= vocab_size) {
            return Err(Failure::bad_request(field, format!("{token} is not a token of this model")));
        }
        let rest = max_model_len.saturating_sub(prompt.len()).max(1);
        let max_new_tokens = request.max_new_tokens.unwrap_or(rest);
        if prompt.len().saturating_add(max_new_tokens) > max_model_len {
            return Err(Failure::TooLong {
                prompt_tokens: prompt.len(),
                completion_tokens: max_new_tokens,
                limit: max_model_len,
            });
        }
        Ok(max_new_tokens)
    }
}

struct Shared {
    info: ModelInfo,
    text: ModelText,
    commands: CommandSender,
    /// Ends when the engine has stopped.
    thread: Option<JoinHandle<()>>,
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
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _already_stopped = self.commands.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _panic_was_printed = thread.join();
        }
    }
}

impl Handle {
    /// The handle of a started engine.
    pub(crate) fn new(started: Started, source: &ModelSource, settings: &Settings) -> Self {
        let Started { text, ready, commands, thread, requests, status, processors } = started;
        let text = text.for_loaded(&ready);
        let Ready { architecture, quantization, context_length, max_model_len, .. } = ready;
        let Ready { vocab_size, memory, adapters, .. } = ready;
        let mut names = source.names().into_iter();
        let info = ModelInfo {
            id: names.next().unwrap_or_default(),
            aliases: names.collect(),
            architecture,
            quantization,
            context_length,
            max_model_len,
            vocab_size,
            memory,
            loaded: true,
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            adapter: None,
        };
        Self(Arc::new(Shared {
            info,
            text,
            commands,
            thread: Some(thread),
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
        }))
    }

    /// Every served model: the model, then its adapters.
    pub fn models(&self) -> Vec<ModelInfo> {
        self.0.models()
    }

    /// Renders, tokenizes, checks and queues a request. Takes milliseconds of CPU for a long prompt: async callers run
    /// it on a thread that may block.
    pub fn submit(&self, request: Request) -> Result<EventStream, Failure> {
        let (request, model) = self.checked(request)?;
        let place = self.0.admit(&request.tenant)?;
        self.submit_checked(request, model, place)
    }

    /// Submits a request that has a place in the queue.
    pub(crate) fn submit_admitted(&self, request: Request, place: Admission) -> Result<EventStream, Failure> {
        let (request, model) = self.checked(request)?;
        self.submit_checked(request, model, place)
    }

    /// A request that may be queued, with its input in the form that the model's chat template supports, and its model.
    fn checked(&self, mut request: Request) -> Result<(Request, Resolved<'_>), Failure> {
        let shared = &*self.0;
        shared.check_open()?;
        request.validate()?;
        if let Some(name) = request.sampling.processors.iter().find(|name| !shared.processors.contains(name))
        {
            let message = format!("the engine was started without a logits processor named `{name}`");
            return Err(Failure::bad_request("logits_processors", message));
        }
        if let Some(structured) = &request.structured {
            structured.validate(&shared.grammar_limits)?;
        }
        let model = shared.resolve(request.model.as_deref())?;
        request.input = model.text.adapt(request.input)?;
        Ok((request, model))
    }

    fn submit_checked(
        &self,
        request: Request,
        model: Resolved<'_>,
        place: Admission,
    ) -> Result<EventStream, Failure> {
        let id = self.0.next_id();
        let prompt = model.text.prompt(&request.input, AddSpecial::Yes, salt(&request, id))?;
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
        let shared = &*self.0;
        if let Some(session) = &request.session_id {
            shared.sessions.insert(&request.tenant, session, || shared.list_sessions().ok());
        }
        let mut job = shared.job(id, &request, &model, prompt)?;
        let Resolved { text, adapter, name, .. } = model;
        job.request.adapter = adapter.as_ref().map_or(0, |adapter| adapter.id);
        let (events_tx, events) = tokio::sync::mpsc::unbounded_channel();
        let output_text = text.output_text(&request, &job.request.prompt);
        let budget = shared.reasoning_budget(&request, &job);
        let jobs = std::iter::once(id).chain(budget.as_ref().map(ReasoningBudget::next_id)).collect();
        let output = RequestOutput::new(&request, (name, adapter), &job, (output_text, budget), events_tx);
        shared.requests.insert(id, output, admission);
        tracing::debug!(request_id = request.id, job = id.0, prompt_tokens = job.prompt, "request queued");
        if shared.commands.send(Command::Submit(Box::new(job))).is_err() {
            shared.requests.remove(id);
            return Err(Failure::unavailable("the engine has stopped"));
        }
        Ok(EventStream::new(request.id, events, CancelOnDrop { jobs, commands: shared.commands.clone() }))
    }

    /// A place in the queue for a tenant's request that is prepared before it is submitted: whose media are fetched. Fails
    /// while the queue is full.
    pub fn admit(&self, tenant: &str) -> Result<Admission, Failure> {
        self.0.admit(tenant)
    }

    /// Cancels a request; false when none has that id. Its stream still ends with an event.
    pub fn cancel(&self, id: &str) -> bool {
        let found = self.0.requests.find(id);
        found.is_some_and(|job| self.0.commands.send(Command::Cancel(job)).is_ok())
    }

    /// A tenant's sessions. Blocks until the current step is done, at most some seconds.
    pub fn sessions(&self, tenant: &str) -> Result<Vec<SessionInfo>, Failure> {
        let shared = &*self.0;
        if let Some(failure) = shared.status.refusal() {
            return Err(failure);
        }
        Ok(shared.sessions.of(tenant, &shared.list_sessions()?))
    }

    /// Ends a tenant's session; false when none has that id.
    pub fn drop_session(&self, tenant: &str, id: &str) -> Result<bool, Failure> {
        if !self.sessions(tenant)?.iter().any(|session| session.id == id) {
            return Ok(false);
        }
        self.0.send(Command::DropSession(SessionNames::number(tenant, id)))?;
        Ok(true)
    }

    /// The unfinished requests.
    pub fn requests(&self) -> Vec<RequestInfo> {
        self.0.requests.infos()
    }

    /// The tokens that a request with this input would start from.
    pub fn tokenize(
        &self,
        model: Option<&str>,
        input: &Input,
        special: AddSpecial,
    ) -> Result<Vec<u32>, Failure> {
        let text = self.0.text_of(model)?;
        let has_media = matches!(input, Input::Chat(chat) if !chat.media.is_empty());
        let _place = if has_media { self.admit("")? } else { Admission::default() };
        let salt = digest(&[b"tokenize"]);
        Ok(text.prompt(&text.adapt(input.clone())?, special, salt)?.tokens)
    }

    /// The bytes of each token.
    pub fn pieces(&self, model: Option<&str>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure> {
        self.0.text_of(model)?.pieces(tokens)
    }

    /// The tokens' text.
    pub fn detokenize(&self, model: Option<&str>, tokens: &[u32]) -> Result<String, Failure> {
        self.0.text_of(model)?.detokenize(tokens)
    }

    /// Whether the engine makes progress.
    pub fn health(&self) -> Health {
        self.0.status.health()
    }

    /// The latest statistics.
    pub fn stats(&self) -> Stats {
        self.0.status.stats()
    }

    /// Accepts no more requests, waits for the running ones, then cancels the rest and waits for their last events.
    pub async fn drain(&self, timeout: Duration) {
        /// A cancelled request ends with the step in flight; a hung engine is not waited for.
        const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
        self.0.draining.store(true, Ordering::Relaxed);
        if tokio::time::timeout(timeout, self.0.requests.wait_until_empty()).await.is_err() {
            for request in self.requests() {
                self.cancel(&request.id);
            }
            let _hung = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.0.requests.wait_until_empty()).await;
        }
    }
}

impl Shared {
    /// Fails while no requests are taken.
    fn check_open(&self) -> Result<(), Failure> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(Failure::unavailable("it is shutting down"));
        }
        self.status.refusal().map_or(Ok(()), Err)
    }

    fn next_id(&self) -> JobId {
        JobId(self.next_job.fetch_add(1, Ordering::Relaxed))
    }

    /// A place in the queue. Fails while it is full.
    fn admit(&self, tenant: &str) -> Result<Admission, Failure> {
        let place = self.requests.admit(tenant, self.max_queue, self.status.running());
        place.ok_or_else(|| Failure::Busy { retry_after_s: self.status.retry_after_s() })
    }

    /// All tenants' sessions. Blocks until the loop replies.
    fn list_sessions(&self) -> Result<Vec<SessionStats>, Failure> {
        const TIMEOUT: Duration = Duration::from_secs(10);
        match self.query(TIMEOUT, Command::ListSessions)? {
            Answer::Sessions(sessions) => Ok(sessions),
            Answer::Adapter(_) => {
                Err(Failure::unavailable("unexpected reply from the engine; this is a bug"))
            }
        }
    }

    fn query(&self, timeout: Duration, command: impl FnOnce(QueryId) -> Command) -> Result<Answer, Failure> {
        let (query, reply) = self.status.new_query();
        let sent = self.send(command(query));
        let answer = sent.map(|()| reply.recv_timeout(timeout));
        self.status.end_query(query);
        answer?.map_err(|_| Failure::unavailable("the engine does not answer"))
    }

    fn send(&self, command: Command) -> Result<(), Failure> {
        self.commands.send(command).map_err(|_| Failure::unavailable("the engine has stopped"))
    }

    fn models(&self) -> Vec<ModelInfo> {
        let adapters = self.adapters.models(&self.info);
        std::iter::once(self.info.clone()).chain(adapters).collect()
    }

    fn text_of(&self, model: Option<&str>) -> Result<&ModelText, Failure> {
        self.resolve(model).map(|resolved| resolved.text)
    }

    /// What serves requests for a model: the model itself, or one of its adapters as `name` or `model:name`.
    fn resolve(&self, model: Option<&str>) -> Result<Resolved<'_>, Failure> {
        let ModelInfo { vocab_size, max_model_len, .. } = self.info;
        let limits = ModelLimits { vocab_size, max_model_len };
        let base = Resolved { text: &self.text, adapter: None, name: self.info.id.clone(), limits };
        let Some(name) = model else { return Ok(base) };
        if self.info.names().any(|served| served == name) {
            return Ok(base);
        }
        let of_base = |base: &str| name.strip_prefix(base)?.strip_prefix(':');
        let named = std::iter::once(name).chain(self.info.names().filter_map(of_base));
        let found = named.filter_map(|name| Some((name, self.adapters.find(name)?))).next();
        let (name, adapter) = found.ok_or_else(|| Failure::unknown_model(name, &self.models()))?;
        Ok(Resolved { adapter: Some(adapter), name: name.to_owned(), ..base })
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
        if let Some(token) =
            sampling.logit_bias.keys().find(|token| **token as usize >= model.limits.vocab_size)
        {
            return Err(Failure::bad_request("logit_bias", format!("{token} is not a token of this model")));
        }
        sampling.seed = Some(sampling.seed.unwrap_or_else(|| sampler::fresh_seed(self.seed, id.0)));
        let stop_tokens = self.stop_tokens(request);
        let xtc_kept = self.xtc_kept(&sampling, &stop_tokens);
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
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            alignment: request.alignment.clone(),
            grammar,
            media,
            timeout_s: request.timeout_s.or(self.timeout_s),
        })
    }
}

/// What the scheduler gets of a request besides its cache.
fn scheduled(request: &Request, prompt: Vec<u32>, goal: Goal) -> core::Request {
    core::Request {
        priority: request.priority,
        // Half is enough: the server chooses the tenants' names.
        tenant: digest(&[b"tenant", request.tenant.as_bytes()]) as u64,
        session: request.session_id.as_deref().map(|id| SessionNames::number(&request.tenant, id)),
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

/// Requests of equal tenant and salt share blocks. A request with prompt log-probabilities or an alignment shares none,
/// because cached blocks have neither.
fn salt(request: &Request, id: JobId) -> u128 {
    if request.prompt_logprobs.is_some() || request.alignment.is_some() {
        return digest(&[b"unshared", &id.0.to_le_bytes()]);
    }
    shared_salt(request)
}

fn shared_salt(request: &Request) -> u128 {
    salt_of(&request.tenant, request.cache_salt.as_deref().unwrap_or_default())
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
