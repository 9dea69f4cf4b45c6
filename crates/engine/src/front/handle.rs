//! The way to the engine for everybody else.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use omnibus_text::AddSpecial;

use super::gauges::Gauges;
use super::info::{Health, ModelInfo, RequestInfo, SessionInfo, Stats};
use super::line::Line;
use super::model::{ModelSource, ModelText, Prompt};
use super::narrator::{Hangup, Narration, Stage};
use super::sessions::SessionNames;
use super::stream::EventStream;
use crate::message::{Command, Job, JobId};
use crate::request::{Input, Request};
use crate::settings::Settings;
use crate::worker::Ready;
use crate::{Failure, sampler};

/// Why an engine cannot start: one line that names the file or the setting and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError(String);

impl StartError {
    pub(crate) fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string().replace('\n', " "))
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// The way to a running engine. Clones share it; the engine stops when the last one is gone, and has stopped when
/// that one's drop returns.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

/// An engine that runs, and what leads to it.
pub(super) struct Started {
    pub(super) text: ModelText,
    pub(super) ready: Ready,
    pub(super) line: Line,
    /// Ends when the engine has.
    pub(super) thread: JoinHandle<()>,
    pub(super) stage: Stage,
    pub(super) gauges: Arc<Gauges>,
}

struct Shared {
    info: ModelInfo,
    text: ModelText,
    line: Line,
    /// The one that ends when the engine has.
    thread: Option<JoinHandle<()>>,
    stage: Stage,
    sessions: SessionNames,
    gauges: Arc<Gauges>,
    next_job: AtomicU64,
    draining: AtomicBool,
    max_queue: usize,
    seed: u64,
    timeout_s: Option<f64>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _stopped = self.line.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _its_panic_was_printed = thread.join();
        }
    }
}

impl Handle {
    /// Puts together what was started.
    pub(super) fn of(started: Started, source: &ModelSource, settings: &Settings) -> Self {
        let Started { text, ready, line, thread, stage, gauges } = started;
        let Ready { architecture, quantization, context_length, max_model_len, vocab_size, memory, prefix } =
            ready;
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
        };
        Self(Arc::new(Shared {
            info,
            text: text.after(prefix),
            line,
            thread: Some(thread),
            stage,
            sessions: SessionNames::default(),
            gauges,
            next_job: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            max_queue: settings.max_queue,
            seed: settings.seed,
            timeout_s: settings.request_timeout_s,
        }))
    }

    /// Every model that can be asked for.
    pub fn models(&self) -> Vec<ModelInfo> {
        vec![self.0.info.clone()]
    }

    /// Renders, tokenizes, checks and queues a request. Takes milliseconds of CPU for a long prompt,
    /// so async callers send it to a thread that may block.
    pub fn submit(&self, request: Request) -> Result<EventStream, Failure> {
        let shared = &*self.0;
        if shared.draining.load(Ordering::Relaxed) {
            return Err(Failure::unavailable("it is shutting down"));
        }
        if let Some(failure) = shared.gauges.refusal() {
            return Err(failure);
        }
        request.validate()?;
        let text = shared.text_of(request.model.as_deref())?;
        let prompt = text.prompt(&request.input, AddSpecial::Yes)?;
        if let Some(session) = &request.session_id {
            shared.sessions.meet(&request.tenant, session, || shared.gauges.stats());
        }
        let id = JobId(shared.next_job.fetch_add(1, Ordering::Relaxed));
        let job = shared.job(id, &request, prompt)?;
        if !shared.stage.has_room(&request.tenant, shared.max_queue, shared.gauges.running()) {
            return Err(Failure::Busy { retry_after_s: shared.gauges.retry_after_s() });
        }
        let (tell, events) = tokio::sync::mpsc::unbounded_channel();
        let tokenizer = Arc::clone(&text.tokenizer);
        let stop_tokens = job.stop_tokens.clone();
        let model = shared.info.id.clone();
        let narration = Narration::new(&request, model, tokenizer, stop_tokens, &job.prompt, tell);
        shared.stage.enter(id, narration);
        if shared.line.send(Command::Submit(Box::new(job))).is_err() {
            shared.stage.leave(id);
            return Err(Failure::unavailable("the engine has stopped"));
        }
        Ok(EventStream::new(request.id, events, Hangup { job: id, line: shared.line.clone() }))
    }

    /// Ends a request early; false when there is none of that id. Its stream still ends with an event.
    pub fn cancel(&self, id: &str) -> bool {
        let found = self.0.stage.find(id);
        found.is_some_and(|job| self.0.line.send(Command::Cancel(job)).is_ok())
    }

    /// A tenant's sessions. Waits for the step that is computed, at most for some seconds.
    pub fn sessions(&self, tenant: &str) -> Result<Vec<SessionInfo>, Failure> {
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        const PATIENCE: Duration = Duration::from_secs(10);
        let shared = &*self.0;
        if let Some(failure) = shared.gauges.refusal() {
            return Err(failure);
        }
        let before = shared.gauges.stats().session_looks_total;
        let asked = Instant::now();
        shared.tell(Command::LookAtSessions)?;
        while asked.elapsed() < PATIENCE {
            let stats = shared.gauges.stats();
            if stats.session_looks_total > before {
                return Ok(shared.sessions.of(tenant, &stats));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(Failure::unavailable("the engine does not answer"))
    }

    /// Ends a tenant's session; false when there is none of that id.
    pub fn drop_session(&self, tenant: &str, id: &str) -> Result<bool, Failure> {
        if !self.sessions(tenant)?.iter().any(|session| session.id == id) {
            return Ok(false);
        }
        self.0.tell(Command::DropSession(SessionNames::number(tenant, id)))?;
        Ok(true)
    }

    /// What is queued or running.
    pub fn requests(&self) -> Vec<RequestInfo> {
        self.0.stage.infos()
    }

    /// The tokens that a request with this input would start from.
    pub fn tokenize(
        &self,
        model: Option<&str>,
        input: &Input,
        special: AddSpecial,
    ) -> Result<Vec<u32>, Failure> {
        Ok(self.0.text_of(model)?.prompt(input, special)?.tokens)
    }

    /// The bytes of each token.
    pub fn pieces(&self, model: Option<&str>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure> {
        self.0.text_of(model)?.pieces(tokens)
    }

    /// The text of tokens.
    pub fn detokenize(&self, model: Option<&str>, tokens: &[u32]) -> Result<String, Failure> {
        self.0.text_of(model)?.detokenize(tokens)
    }

    /// Whether steps happen when there is work.
    pub fn health(&self) -> Health {
        self.0.gauges.health()
    }

    /// Gauges as they are now.
    pub fn stats(&self) -> Stats {
        // Whose sessions there are is not for everybody.
        Stats { sessions: Vec::new(), ..self.0.gauges.stats() }
    }

    /// Takes no more requests, waits for what runs, then cancels the rest and waits until that has been told.
    pub async fn drain(&self, timeout: Duration) {
        /// A cancelled request ends with the step in flight; an engine that hangs is not waited for.
        const GOODBYE: Duration = Duration::from_secs(5);
        self.0.draining.store(true, Ordering::Relaxed);
        if tokio::time::timeout(timeout, self.all_done()).await.is_err() {
            for request in self.requests() {
                self.cancel(&request.id);
            }
            let _hangs = tokio::time::timeout(GOODBYE, self.all_done()).await;
        }
    }

    async fn all_done(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        while self.0.stage.len() > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Shared {
    fn tell(&self, command: Command) -> Result<(), Failure> {
        let told = self.line.send(command);
        told.map_err(|_| Failure::unavailable("the engine has stopped"))
    }

    fn text_of(&self, model: Option<&str>) -> Result<&ModelText, Failure> {
        match model {
            Some(name) if name != self.info.id && !self.info.aliases.iter().any(|alias| alias == name) => {
                Err(Failure::UnknownModel { model: name.to_owned() })
            }
            _ => Ok(&self.text),
        }
    }

    /// The request in tokens, checked against the model's sizes.
    fn job(&self, id: JobId, request: &Request, written: Prompt) -> Result<Job, Failure> {
        let prompt = &written.tokens;
        let (vocab, longest) = (self.info.vocab_size, self.info.max_model_len);
        let field = match request.input {
            Input::Chat(_) => "messages",
            Input::Text(_) | Input::Tokens(_) => "prompt",
        };
        if prompt.is_empty() {
            return Err(Failure::bad_request(field, "the prompt has no tokens"));
        }
        if let Some(token) = prompt.iter().find(|token| **token as usize >= vocab) {
            return Err(Failure::bad_request(field, format!("{token} is not a token of this model")));
        }
        // One token is drawn even when only the prompt is scored; it is not told.
        let asked = request.max_new_tokens.map(|asked| asked.max(1));
        let wanted = asked.unwrap_or(longest.saturating_sub(prompt.len()).max(1));
        if prompt.len().saturating_add(wanted) > longest {
            let asked = match request.max_new_tokens {
                Some(wanted) => format!("{} tokens of prompt and {wanted} of answer", prompt.len()),
                None => format!("{} tokens of prompt", prompt.len()),
            };
            return Err(Failure::TooLong {
                message: format!("this model's context is {longest} tokens; {asked} do not fit"),
            });
        }
        let mut sampling = request.sampling.clone();
        if let Some(token) = sampling.logit_bias.keys().find(|token| **token as usize >= vocab) {
            return Err(Failure::bad_request("logit_bias", format!("{token} is not a token of this model")));
        }
        sampling.seed = Some(sampling.seed.unwrap_or_else(|| sampler::fresh_seed(self.seed, id.0)));
        let mut stop_tokens = request.stop.token_ids.clone();
        if !request.stop.ignore_eos {
            stop_tokens.extend(self.text.tokenizer.eos_ids());
        }
        stop_tokens.sort_unstable();
        let turns = self.text.turns(&request.input, &written);
        Ok(Job {
            id,
            prompt: written.tokens,
            generated: Vec::new(),
            max_new_tokens: wanted,
            sampling,
            stop_tokens,
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            priority: request.priority,
            timeout_s: request.timeout_s.or(self.timeout_s),
            cache_salt: salt(request, id),
            tenant: hash(&[request.tenant.as_bytes()]),
            session: request.session_id.as_deref().map(|id| SessionNames::number(&request.tenant, id)),
            boundaries: turns.ends,
            history: turns.history,
        })
    }
}

/// Requests share blocks when tenant and salt are the same. One that wants its prompt scored shares
/// with nobody, because what is cached has no logits.
fn salt(request: &Request, id: JobId) -> u64 {
    if request.prompt_logprobs.is_some() {
        return hash(&[b"alone", &id.0.to_le_bytes()]);
    }
    hash(&[request.tenant.as_bytes(), request.cache_salt.as_deref().unwrap_or_default().as_bytes()])
}

/// FNV-1a over length-prefixed parts.
pub(super) fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts
        .iter()
        .flat_map(|part| (part.len() as u64).to_le_bytes().into_iter().chain(part.iter().copied()));
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
