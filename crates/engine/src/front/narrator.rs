//! Turns the loop's notes into the clients' events: text, stop strings, usage.
//!
//! One thread does it for all requests, so that neither the loop nor a slow client does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use omnibus_text::{Detokenizer, Keep, SkipSpecial, StopMatcher, Tokenizer};
use tokio::sync::mpsc::UnboundedSender;

use super::gauges::Gauges;
use super::info::{RequestInfo, RequestState};
use super::line::Line;
use crate::event::{Candidate, Event, Failure, FinishReason, StopMatch, TokenInfo, Usage};
use crate::message::{Command, JobId, News, Note, Report, Scored};
use crate::request::Stop;

/// The requests that are not over, shared by those who submit and the narrating thread.
#[derive(Clone, Default)]
pub(super) struct Stage(Arc<Mutex<BTreeMap<JobId, Narration>>>);

/// One request's story so far.
pub(super) struct Narration {
    id: String,
    tenant: String,
    model: String,
    submitted: Instant,
    state: RequestState,
    events: UnboundedSender<Event>,
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    stops: Vec<String>,
    matcher: StopMatcher,
    /// End tokens, sorted; their text is not part of the answer.
    stop_tokens: Vec<u32>,
    scored: bool,
    prompt: PromptTold,
    answer: Answer,
    usage: Usage,
    last: Option<u32>,
    timeout_s: Option<f64>,
}

/// How much of a prompt's scores the client has heard.
enum PromptTold {
    /// It did not ask.
    Unasked,
    /// Nothing yet; the first token, which nothing scores, is told with the start.
    Nothing { first: u32 },
    /// So many tokens.
    Tokens(usize),
}

/// Whether there is an answer at all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Wanted,
    /// Only the prompt is scored. The loop always draws a token; this one is not told.
    Unwanted,
}

impl Narration {
    pub(super) fn new(
        request: &crate::Request,
        model: String,
        tokenizer: Arc<Tokenizer>,
        stop_tokens: Vec<u32>,
        prompt: &[u32],
        events: UnboundedSender<Event>,
    ) -> Self {
        let Stop { strings, include, .. } = &request.stop;
        Self {
            id: request.id.clone(),
            tenant: request.tenant.clone(),
            model,
            submitted: Instant::now(),
            state: RequestState::Queued,
            events,
            detokenizer: Detokenizer::new(Arc::clone(&tokenizer), SkipSpecial::Yes),
            tokenizer,
            stops: strings.clone(),
            matcher: StopMatcher::new(strings.clone(), if *include { Keep::Yes } else { Keep::No }),
            stop_tokens,
            scored: request.logprobs.is_some(),
            prompt: match (request.prompt_logprobs, prompt.first()) {
                (Some(_), Some(first)) => PromptTold::Nothing { first: *first },
                _ => PromptTold::Unasked,
            },
            answer: if request.max_new_tokens == Some(0) { Answer::Unwanted } else { Answer::Wanted },
            usage: Usage { prompt_tokens: prompt.len(), ..Usage::default() },
            last: None,
            timeout_s: request.timeout_s,
        }
    }

    fn info(&self) -> RequestInfo {
        RequestInfo {
            id: self.id.clone(),
            model: self.model.clone(),
            state: self.state,
            prompt_tokens: self.usage.prompt_tokens,
            generated_tokens: self.usage.completion_tokens,
            age_s: self.submitted.elapsed().as_secs_f64(),
        }
    }

    /// Tells the client what a note means. True when the story is over.
    fn hear(&mut self, news: News) -> Heard {
        match news {
            News::Started { cached_tokens, history_changed_at } => {
                if let Some(position) = history_changed_at {
                    let id = &self.id;
                    tracing::debug!(
                        id,
                        position,
                        cached_tokens,
                        "the history of a conversation was rewritten; what came before it is reused"
                    );
                }
                self.start(cached_tokens);
                Heard::GoesOn
            }
            News::Prompt { first, scored } => {
                self.hear_prompt(first, scored);
                Heard::GoesOn
            }
            News::Token(_) if self.answer == Answer::Unwanted => {
                self.end(FinishReason::Length, None);
                Heard::EndedHere
            }
            News::Token(scored) => self.hear_token(scored),
            News::Finished(reason) => {
                let ended_by_token = self.last.filter(|token| self.stop_tokens.binary_search(token).is_ok());
                let matched = match reason {
                    FinishReason::Stop => ended_by_token.map(StopMatch::Token),
                    FinishReason::Length | FinishReason::Cancelled => None,
                };
                self.finish(reason, matched)
            }
            News::Failed(failure) => {
                let failure = match (failure, self.timeout_s) {
                    (Failure::Timeout { .. }, Some(after_s)) => Failure::Timeout { after_s },
                    (failure, _) => failure,
                };
                self.tell(Event::Failed(failure));
                Heard::Ended
            }
        }
    }

    /// A sequence that starts over says so again, which is nothing new.
    fn start(&mut self, cached_tokens: usize) {
        if self.state == RequestState::Running {
            return;
        }
        self.state = RequestState::Running;
        self.usage.cached_tokens = cached_tokens;
        self.tell(Event::Started { prompt_tokens: self.usage.prompt_tokens, cached_tokens });
        if let PromptTold::Nothing { first } = self.prompt {
            let unscored = Scored { token: first, logprob: None, top: Vec::new() };
            self.tell(Event::Prompt(vec![self.info_of(unscored)]));
            self.prompt = PromptTold::Tokens(1);
        }
    }

    fn hear_prompt(&mut self, first: usize, scored: Vec<Scored>) {
        let PromptTold::Tokens(told) = self.prompt else { return };
        let news = scored.into_iter().skip(told.saturating_sub(first));
        let tokens: Vec<TokenInfo> = news.map(|scored| self.info_of(scored)).collect();
        if !tokens.is_empty() {
            self.prompt = PromptTold::Tokens(told + tokens.len());
            self.tell(Event::Prompt(tokens));
        }
    }

    fn hear_token(&mut self, scored: Scored) -> Heard {
        self.usage.completion_tokens += 1;
        self.last = Some(scored.token);
        let ends = self.stop_tokens.binary_search(&scored.token).is_ok();
        let text = if ends { String::new() } else { self.detokenizer.push(scored.token) };
        let stopped = self.matcher.push(&text);
        // An end token has no text to score.
        let tokens = if self.scored && !ends { vec![self.info_of(scored)] } else { Vec::new() };
        if !stopped.emit.is_empty() || !tokens.is_empty() {
            self.tell(Event::Delta { text: stopped.emit, tokens });
        }
        match stopped.matched.and_then(|place| self.stops.get(place).cloned()) {
            Some(stop) => {
                self.end(FinishReason::Stop, Some(StopMatch::String(stop)));
                Heard::EndedHere
            }
            None => Heard::GoesOn,
        }
    }

    /// Lets go of what was held back, then ends.
    fn finish(&mut self, reason: FinishReason, matched: Option<StopMatch>) -> Heard {
        let rest = self.detokenizer.finish();
        let stopped = self.matcher.push(&rest);
        let text = match stopped.matched {
            Some(_) => stopped.emit,
            None => stopped.emit + &self.matcher.flush(),
        };
        if !text.is_empty() {
            self.tell(Event::Delta { text, tokens: Vec::new() });
        }
        let by_text = stopped.matched.and_then(|place| self.stops.get(place).cloned());
        match by_text {
            Some(stop) => self.end(FinishReason::Stop, Some(StopMatch::String(stop))),
            None => self.end(reason, matched),
        }
        Heard::Ended
    }

    fn end(&self, reason: FinishReason, matched: Option<StopMatch>) {
        self.tell(Event::Finished { reason, matched, usage: self.usage });
    }

    fn info_of(&self, scored: Scored) -> TokenInfo {
        let bytes = |token| self.tokenizer.id_to_piece(token).unwrap_or_default();
        let top = scored.top.into_iter().map(|(id, logprob)| Candidate { id, bytes: bytes(id), logprob });
        TokenInfo {
            id: scored.token,
            bytes: bytes(scored.token),
            logprob: scored.logprob,
            top: top.collect(),
        }
    }

    /// A client that is gone hears nothing; its hang-up has been noticed elsewhere.
    fn tell(&self, event: Event) {
        let _gone = self.events.send(event);
    }
}

enum Heard {
    GoesOn,
    Ended,
    /// Something ended it that the loop does not know: a stop string, or that nobody wants an answer.
    EndedHere,
}

impl Stage {
    pub(super) fn enter(&self, job: JobId, narration: Narration) {
        self.lock().insert(job, narration);
    }

    /// Forgets a request that was never queued.
    pub(super) fn leave(&self, job: JobId) {
        self.lock().remove(&job);
    }

    pub(super) fn find(&self, id: &str) -> Option<JobId> {
        self.lock().iter().find(|(_, narration)| narration.id == id).map(|(job, _)| *job)
    }

    pub(super) fn infos(&self) -> Vec<RequestInfo> {
        self.lock().values().map(Narration::info).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// True when one more of this tenant may come in, while so many run and the queue is so long. What is kept for those
    /// with less than their share is as in the scheduler, which decides when requests come at once.
    pub(super) fn has_room(&self, tenant: &str, queue: usize, running: usize) -> bool {
        let stage = self.lock();
        let full = queue.saturating_add(running);
        if stage.len() < full {
            return true;
        }
        let tenants: BTreeSet<&str> =
            stage.values().map(|narration| narration.tenant.as_str()).chain([tenant]).collect();
        let own = stage.values().filter(|narration| narration.tenant == tenant).count();
        let has_less = tenants.len() > 1 && own.saturating_mul(tenants.len()) < queue;
        has_less && stage.len() < full.saturating_add(queue.div_ceil(4))
    }

    /// Narrates until the loop hangs up, then tells everybody left that the engine is gone.
    pub(super) fn narrate(&self, reports: &Receiver<Report>, gauges: &Gauges, line: &Line) {
        while let Ok(Report { notes, stats, steps }) = reports.recv() {
            // Who hears of an end can rely on the numbers.
            gauges.hear(stats, &steps);
            for job in self.hear(notes) {
                let _stopping = line.send(Command::Cancel(job));
            }
        }
        gauges.end();
        self.end();
    }

    /// Tells the clients what notes mean. Gives the jobs that are over though the loop does not know it.
    pub(super) fn hear(&self, notes: Vec<Note>) -> Vec<JobId> {
        let mut ended_here = Vec::new();
        let mut stage = self.lock();
        for Note { job, news } in notes {
            let Some(narration) = stage.get_mut(&job) else { continue };
            match narration.hear(news) {
                Heard::GoesOn => {}
                Heard::Ended => {
                    stage.remove(&job);
                }
                Heard::EndedHere => {
                    stage.remove(&job);
                    ended_here.push(job);
                }
            }
        }
        ended_here
    }

    /// Tells everybody left that the engine is gone.
    pub(super) fn end(&self) {
        for (_, mut narration) in std::mem::take(&mut *self.lock()) {
            narration.hear(News::Failed(Failure::unavailable("the engine has stopped")));
        }
    }

    /// The stage holds no state that a panic could leave half-changed and wrong for others.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Narration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cancels a request when its client lets go of it.
pub(super) struct Hangup {
    pub(super) job: JobId,
    pub(super) line: Line,
}

impl Drop for Hangup {
    fn drop(&mut self) {
        // Of a request that is over, the loop knows nothing and does nothing.
        let _stopping = self.line.send(Command::Cancel(self.job));
    }
}
