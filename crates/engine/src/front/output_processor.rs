//! Turns the loop's reports on one request into its client's events: text, stop strings, usage.

use std::sync::Arc;
use std::time::Instant;

use omnibus_core::{Class, HeldBlocks};
use tokio::sync::mpsc::UnboundedSender;

use super::adapters::AdapterUse;
use super::output_text::{Ended, NewText, OutputText, Part};
use super::reasoning_budget::ReasoningBudget;
use crate::energy::EnergyUsage;
use crate::error::Failure;
use crate::event::{Candidate, Delta, Event, FinishReason, MediaUsage, StopMatch, TokenInfo, Usage};
use crate::info::{RequestInfo, RequestOrigin, RequestState};
use crate::message::{Command, CommandSender, Job, JobId, JobUpdate, TokenLogprobs};
use crate::request::{ReportedTokens, Request};
use crate::step_record::WATCH_TIME;

/// One request's output so far.
pub(crate) struct RequestOutput {
    id: String,
    tenant: String,
    class: Class,
    origin: RequestOrigin,
    model: String,
    /// Its adapter stays loaded until it ends.
    _adapter: Option<Arc<AdapterUse>>,
    submitted: Instant,
    state: RequestState,
    events: UnboundedSender<Event>,
    text: OutputText,
    /// Until it is spent.
    budget: Option<ReasoningBudget>,
    /// End tokens, sorted; their text is not part of the answer.
    stop_tokens: Vec<u32>,
    with_tokens: bool,
    prompt_logprobs: PromptLogprobs,
    /// Whether an end token has a log-probability.
    scores_end: bool,
    /// Tokens of the prompt that the client knows to be computed.
    progress: usize,
    usage: Usage,
    last: Option<u32>,
    /// Seconds from its submission to its deadline: its own limit, or the server's.
    timeout_s: Option<f64>,
    /// The KV blocks that it holds, and when that was reported.
    blocks: Option<(HeldBlocks, Instant)>,
}

/// How many of the prompt's log-probabilities the client has.
enum PromptLogprobs {
    /// They were not requested.
    NotRequested,
    /// None yet. The first token, which has none, is sent with the start.
    Pending { first: u32 },
    /// Log-probabilities of the tokens up to this one were sent, or not requested.
    Sent(usize),
}

impl RequestOutput {
    pub(super) fn new(
        request: &Request,
        (model, adapter): (String, Option<Arc<AdapterUse>>),
        job: &Job,
        (text, budget): (OutputText, Option<ReasoningBudget>),
        events: UnboundedSender<Event>,
    ) -> Self {
        let prompt = &job.request.prompt;
        Self {
            id: request.id.clone(),
            tenant: request.tenant.clone(),
            class: request.class,
            origin: request.origin.clone(),
            model,
            _adapter: adapter,
            submitted: Instant::now(),
            state: RequestState::Queued,
            events,
            text,
            budget,
            stop_tokens: job.stop_tokens.clone(),
            with_tokens: request.logprobs.is_some() || request.tokens == ReportedTokens::Always,
            scores_end: request.logprobs.is_some() && request.prompt_logprobs.is_some(),
            prompt_logprobs: match (request.prompt_logprobs, prompt.first()) {
                (Some(_), _) if request.logprob_start > 0 => PromptLogprobs::Sent(request.logprob_start),
                (Some(_), Some(first)) => PromptLogprobs::Pending { first: *first },
                _ => PromptLogprobs::NotRequested,
            },
            progress: 0,
            usage: Usage { prompt_tokens: prompt.len(), ..Usage::default() },
            last: None,
            timeout_s: job.timeout_s,
            blocks: None,
        }
    }

    pub(crate) fn is_named(&self, id: &str) -> bool {
        self.id == id
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn tenant(&self) -> &str {
        &self.tenant
    }

    pub(crate) fn info(&self) -> RequestInfo {
        let age_s = self.submitted.elapsed().as_secs_f64();
        let blocks = self.blocks.filter(|(_, reported)| reported.elapsed() < WATCH_TIME);
        RequestInfo {
            id: self.id.clone(),
            tenant: self.tenant.clone(),
            origin: self.origin.clone(),
            model: self.model.clone(),
            state: self.state,
            prompt_tokens: self.usage.prompt_tokens,
            generated_tokens: self.usage.completion_tokens,
            age_s,
            deadline_s: self.timeout_s.map(|timeout_s| timeout_s - age_s),
            blocks: blocks.map(|(held, _)| held),
        }
    }

    /// Sends the client the events of an update.
    pub(crate) fn handle(&mut self, update: JobUpdate) -> OutputState {
        match update {
            JobUpdate::Started { cached_tokens, history_changed_at, media } => {
                if let Some(position) = history_changed_at {
                    tracing::debug!(
                        request_id = self.id,
                        position,
                        cached_tokens,
                        "the conversation's history was rewritten; only the part before the change is reused"
                    );
                }
                self.start(cached_tokens, media);
                OutputState::Active
            }
            JobUpdate::Progress { computed } => {
                self.report_progress(computed);
                OutputState::Active
            }
            JobUpdate::Prompt { first, tokens } => {
                self.handle_prompt(first, tokens);
                OutputState::Active
            }
            JobUpdate::Alignment(tokens) => {
                self.send(Event::Alignment(tokens));
                OutputState::Active
            }
            JobUpdate::Hidden(states) => {
                self.send(Event::Hidden(states));
                OutputState::Active
            }
            JobUpdate::TokenLogits(logits) => {
                self.send(Event::TokenLogits(logits));
                OutputState::Active
            }
            JobUpdate::Token(token) => self.handle_token(token),
            JobUpdate::Drafted(drafts) => {
                self.usage.drafts += drafts;
                OutputState::Active
            }
            JobUpdate::Energy(energy) => {
                self.usage.energy = EnergyUsage::sum(self.usage.energy, Some(energy));
                OutputState::Active
            }
            JobUpdate::Blocks(held) => {
                self.blocks = Some((held, Instant::now()));
                OutputState::Active
            }
            JobUpdate::Finished(reason) => {
                let ended_by_token = self.last.filter(|token| self.stop_tokens.binary_search(token).is_ok());
                let matched = match reason {
                    FinishReason::Stop => ended_by_token.map(StopMatch::Token),
                    FinishReason::Length | FinishReason::Cancelled => None,
                };
                self.finish(reason, matched)
            }
            JobUpdate::Failed(failure) => {
                // The engine may have got what was left of the limit after a restart.
                let failure = match (failure, self.timeout_s) {
                    (Failure::Timeout { .. }, Some(after_s)) => Failure::Timeout { after_s },
                    (failure, _) => failure,
                };
                tracing::warn!(request_id = self.id, %failure, "request failed");
                self.send(Event::Failed(failure));
                OutputState::Finished
            }
        }
    }

    /// A recomputed sequence starts again, which the client does not see.
    fn start(&mut self, cached_tokens: usize, media: MediaUsage) {
        if self.state == RequestState::Running {
            return;
        }
        self.state = RequestState::Running;
        self.usage.cached_tokens = cached_tokens;
        self.usage.media = media;
        tracing::debug!(request_id = self.id, cached_tokens, "request started");
        self.send(Event::Started { prompt_tokens: self.usage.prompt_tokens, cached_tokens });
        if let PromptLogprobs::Pending { first } = self.prompt_logprobs {
            let first = TokenLogprobs { token: first, logprob: None, top: Vec::new() };
            self.send(Event::Prompt(vec![self.info_of(first)]));
            self.prompt_logprobs = PromptLogprobs::Sent(1);
        }
    }

    /// A sequence that is computed again begins again, which the client does not see.
    fn report_progress(&mut self, computed: usize) {
        if self.last.is_none() && computed > self.progress && computed < self.usage.prompt_tokens {
            self.progress = computed;
            self.send(Event::Progress { processed_tokens: computed });
        }
    }

    fn handle_prompt(&mut self, first: usize, tokens: Vec<TokenLogprobs>) {
        let PromptLogprobs::Sent(sent) = self.prompt_logprobs else { return };
        let new = tokens.into_iter().skip(sent.saturating_sub(first));
        let tokens: Vec<TokenInfo> = new.map(|token| self.info_of(token)).collect();
        if !tokens.is_empty() {
            self.prompt_logprobs = PromptLogprobs::Sent(sent + tokens.len());
            self.send(Event::Prompt(tokens));
        }
    }

    fn handle_token(&mut self, token: TokenLogprobs) -> OutputState {
        self.usage.completion_tokens += 1;
        let id = token.token;
        self.last = Some(id);
        let ends = self.stop_tokens.binary_search(&token.token).is_ok();
        let before = self.text.part();
        let new = if ends { NewText::default() } else { self.text.push(token.token) };
        if before == Part::Reasoning || self.text.part() == Part::Reasoning {
            self.usage.reasoning_tokens += 1;
        }
        // An end token has no text, so it has no log-probability either, unless those of the prompt stand before it: harnesses
        // leave out what is generated behind a prompt by its count of tokens.
        let is_scored = !ends || self.scores_end;
        let tokens = if self.with_tokens && is_scored { vec![self.info_of(token)] } else { Vec::new() };
        self.send_deltas(new.deltas, tokens);
        match new.ended {
            Some(ended) => {
                self.end(FinishReason::Stop, matched_by(ended));
                OutputState::Stopped
            }
            None if ends => OutputState::Active,
            None => self.spend(id),
        }
    }

    /// Counts a token against the limit on reasoning. When it is spent, reasoning is closed.
    fn spend(&mut self, token: u32) -> OutputState {
        let Some(budget) = &mut self.budget else { return OutputState::Active };
        budget.push(token);
        let is_spent = self.usage.reasoning_tokens >= budget.tokens;
        match self.budget.take_if(|_| is_spent && self.text.part() == Part::Reasoning) {
            Some(budget) => self.close_reasoning(budget),
            None => OutputState::Active,
        }
    }

    fn close_reasoning(&mut self, budget: ReasoningBudget) -> OutputState {
        tracing::debug!(request_id = self.id, tokens = budget.tokens, "the reasoning budget is spent");
        for token in &budget.closing {
            self.usage.completion_tokens += 1;
            self.usage.reasoning_tokens += 1;
            let new = self.text.push(*token);
            self.send_deltas(new.deltas, Vec::new());
        }
        match budget.continuation() {
            Some(job) => OutputState::Continued(Box::new(job)),
            None => {
                self.end(FinishReason::Length, None);
                OutputState::Stopped
            }
        }
    }

    /// Sends deltas, the first with the tokens. Tokens without a delta get an empty one.
    fn send_deltas(&self, deltas: Vec<Delta>, mut tokens: Vec<TokenInfo>) {
        for delta in deltas {
            self.send(Event::Delta { delta, tokens: std::mem::take(&mut tokens) });
        }
        if !tokens.is_empty() {
            self.send(Event::Delta { delta: Delta::Text(String::new()), tokens });
        }
    }

    /// Sends the text that was held back, then ends.
    fn finish(&mut self, reason: FinishReason, matched: Option<StopMatch>) -> OutputState {
        let new = self.text.finish();
        self.send_deltas(new.deltas, Vec::new());
        match new.ended {
            Some(ended) => self.end(FinishReason::Stop, matched_by(ended)),
            None => self.end(reason, matched),
        }
        OutputState::Finished
    }

    fn end(&self, reason: FinishReason, matched: Option<StopMatch>) {
        let Usage { prompt_tokens, completion_tokens, .. } = self.usage;
        tracing::debug!(request_id = self.id, ?reason, prompt_tokens, completion_tokens, "request finished");
        self.send(Event::Finished { reason, matched, usage: self.usage });
    }

    fn info_of(&self, token: TokenLogprobs) -> TokenInfo {
        let bytes = |token| self.text.piece(token);
        let top = token.top.into_iter().map(|(id, logprob)| Candidate { id, bytes: bytes(id), logprob });
        TokenInfo { id: token.token, bytes: bytes(token.token), logprob: token.logprob, top: top.collect() }
    }

    /// Dropping the stream cancels the request, so a closed channel needs no action here.
    fn send(&self, event: Event) {
        let _disconnected = self.events.send(event);
    }
}

fn matched_by(ended: Ended) -> Option<StopMatch> {
    match ended {
        Ended::StopString(stop) => Some(StopMatch::String(stop)),
        Ended::Call => None,
    }
}

/// A request's output after an update.
pub(crate) enum OutputState {
    Active,
    Finished,
    /// Finished here, while the loop still computes it: a stop string.
    Stopped,
    /// Goes on as this job, in place of the one whose update it was.
    Continued(Box<Job>),
}

/// Cancels a request when its client drops the stream.
pub(super) struct CancelOnDrop {
    /// The request's job, and the one that may continue it.
    pub(super) jobs: Vec<JobId>,
    pub(super) commands: CommandSender,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // The loop ignores finished requests.
        for job in &self.jobs {
            let _stopping = self.commands.send(Command::Cancel(*job));
        }
    }
}
