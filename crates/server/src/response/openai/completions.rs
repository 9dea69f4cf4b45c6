//! The framer of `POST /v1/completions`.

use std::time::Instant;

use omnibus_engine::{Delta, Event as EngineEvent, FinishReason, TokenInfo, Usage};

use super::logprobs::Offsets;
use super::{FINGERPRINT, Include, Logprobs, done, failed, finish_reason};
use crate::error::ApiError;
use crate::lower::Choices;
use crate::response::{Completion, Event, Framer, Frames, JsonBody, ResponseHeader, TimedChoice};
use crate::wire::completions::{Choice, Completion as Chunk};
use crate::wire::generation::StreamUsage;
use crate::wire::logprobs::TextLogprobs;
use crate::wire::usage as wire;

/// Frames text completions.
#[derive(Debug)]
pub struct CompletionsFramer {
    header: ResponseHeader,
    include: Include,
    choices: Vec<ChoiceState>,
    per_prompt: usize,
    /// Choices of each prompt that are returned: those whose tokens are the most likely.
    returned: usize,
}

#[derive(Debug, Clone, Default)]
struct ChoiceState {
    /// The prompt's text until it is sent; empty without `echo`.
    echo: String,
    /// Where the next token begins.
    offsets: Offsets,
    /// The ids of the prompt's tokens until they are sent, when requested.
    prompt_token_ids: Option<Vec<u32>>,
    /// So far.
    usage: Usage,
    timed: TimedChoice,
}

impl CompletionsFramer {
    /// The framer of one response. `echoes` has the text of each prompt, with `echo`.
    pub fn new(
        header: ResponseHeader,
        choices: Choices,
        include: Include,
        echoes: Option<Vec<String>>,
    ) -> Self {
        let prompts = echoes.unwrap_or_else(|| vec![String::new(); choices.count / choices.per_prompt]);
        let state = |echo: String| vec![ChoiceState { echo, ..ChoiceState::default() }; choices.per_prompt];
        let states: Vec<ChoiceState> = prompts.into_iter().flat_map(state).collect();
        assert_eq!(states.len(), choices.count, "every choice has a prompt");
        let per_prompt = choices.per_prompt;
        Self { header, include, choices: states, per_prompt, returned: per_prompt }
    }

    /// This framer, with so many choices of each prompt in a full response.
    pub fn returning(self, returned: usize) -> Self {
        Self { returned, ..self }
    }

    /// This framer, which sends the ids of each prompt's tokens.
    pub fn with_prompts(mut self, prompts: Option<Vec<Vec<u32>>>) -> Self {
        for (prompt, ids) in prompts.into_iter().flatten().enumerate() {
            let of_prompt = self.choices.iter_mut().skip(prompt * self.per_prompt).take(self.per_prompt);
            of_prompt.for_each(|state| state.prompt_token_ids = Some(ids.clone()));
        }
        self
    }

    fn body(&self, choices: Vec<Choice>, usage: Option<Option<wire::Usage>>) -> Chunk {
        Chunk {
            id: self.header.id.clone(),
            object: "text_completion",
            created: self.header.created,
            model: self.header.model.clone(),
            choices,
            usage,
            system_fingerprint: FINGERPRINT,
            timings: None,
            kv_transfer_params: None,
            prompt_progress: None,
        }
    }

    /// A chunk that says how much of the prompt of a choice is computed, when that was requested.
    fn progress(&self, index: usize, event: &Event, now: Instant) -> Option<Chunk> {
        let progress = self.include.progress(&self.choices.get(index)?.timed, event, now)?;
        let choice = Choice {
            index,
            text: String::new(),
            logprobs: None,
            finish_reason: None,
            token_ids: None,
            prompt_token_ids: None,
            prompt_logprobs: None,
        };
        Some(Chunk { prompt_progress: Some(progress), ..self.chunk(vec![choice], None) })
    }

    fn chunk(&self, choices: Vec<Choice>, usage: Option<Usage>) -> Chunk {
        let choice = choices.first().and_then(|choice| self.choices.get(choice.index));
        let so_far = choice.map(|choice| choice.usage).unwrap_or_default();
        let timings = choice.and_then(|choice| self.include.timings(&choice.timed));
        Chunk { timings, ..self.body(choices, self.include.usage_field(usage, so_far)) }
    }

    fn logprobs(&mut self, index: usize, tokens: Vec<TokenInfo>) -> Option<TextLogprobs> {
        let state = self.choices.get_mut(index)?;
        let names = self.include.tokens.names;
        (self.include.logprobs == Logprobs::Include).then(|| state.offsets.text(tokens, names))
    }

    fn echo(&mut self, index: usize) -> String {
        self.choices.get_mut(index).map(|state| std::mem::take(&mut state.echo)).unwrap_or_default()
    }

    /// A choice with new text, after the prompt when that is not sent yet.
    fn delta(&mut self, index: usize, text: &str, tokens: Vec<TokenInfo>) -> Option<Choice> {
        let text = self.echo(index) + text;
        if text.is_empty() && !self.include.shows(&tokens) {
            return None;
        }
        let token_ids = self.include.token_ids(&tokens);
        let logprobs = self.logprobs(index, tokens);
        let prompt_token_ids = self.prompt_token_ids(index);
        Some(Choice {
            index,
            text,
            logprobs,
            finish_reason: None,
            token_ids,
            prompt_token_ids,
            prompt_logprobs: None,
        })
    }

    fn prompt_token_ids(&mut self, index: usize) -> Option<Vec<u32>> {
        self.choices.get_mut(index).and_then(|state| state.prompt_token_ids.take())
    }

    fn count(&mut self, index: usize, add: impl FnOnce(&mut Usage)) {
        if let Some(state) = self.choices.get_mut(index) {
            add(&mut state.usage);
        }
    }

    fn full_choice(&mut self, index: usize, completion: Completion) -> Choice {
        let text = completion.text();
        let Completion { tokens, mut prompt_tokens, finish_reason: reason, .. } = completion;
        let prompt_logprobs = match self.include.prompt_logprobs {
            Logprobs::Include => self.include.prompt_logprobs(std::mem::take(&mut prompt_tokens)),
            Logprobs::Omit => None,
        };
        let text = self.echo(index) + &text;
        let token_ids = self.include.token_ids(&tokens);
        let prompt_token_ids = self.prompt_token_ids(index);
        let logprobs = self.logprobs(index, prompt_tokens.into_iter().chain(tokens).collect());
        let reason = finish_reason(reason.unwrap_or(FinishReason::Cancelled));
        let finish_reason = Some(reason);
        Choice { index, text, logprobs, finish_reason, token_ids, prompt_token_ids, prompt_logprobs }
    }
}

/// The mean log-probability of a completion's tokens.
fn mean_logprob(completion: &Completion) -> f64 {
    let logprobs = completion.tokens.iter().filter_map(|token| token.logprob).map(f64::from);
    let (sum, count) = logprobs.fold((0.0, 0.0), |(sum, count), logprob| (sum + logprob, count + 1.0));
    if count > 0.0 { sum / count } else { f64::NEG_INFINITY }
}

/// The text of a delta. Raw prompts have no tool definitions, so that there are no tool calls.
fn text_of(delta: &Delta) -> &str {
    match delta {
        Delta::Text(text) | Delta::Reasoning(text) => text,
        Delta::ToolCallStart { .. } | Delta::ToolCallArguments(_) | Delta::ToolCallEnd(_) => "",
    }
}

impl Framer for CompletionsFramer {
    type Body = JsonBody;

    /// Sends the prompts, unless they wait for their log-probabilities.
    fn start(&mut self, frames: &mut Frames) {
        if self.include.logprobs == Logprobs::Include {
            return;
        }
        for index in 0..self.choices.len() {
            if let Some(choice) = self.delta(index, "", Vec::new()) {
                frames.data(&self.chunk(vec![choice], None));
            }
        }
    }

    fn event(&mut self, index: usize, event: Event, frames: &mut Frames) {
        let now = Instant::now();
        if let Some(choice) = self.choices.get_mut(index) {
            choice.timed.add(&event, now);
        }
        if let Some(chunk) = self.progress(index, &event, now) {
            frames.data(&chunk);
        }
        let choice = match event {
            Event::Engine(EngineEvent::Prompt(tokens)) => self.delta(index, "", tokens),
            Event::Engine(EngineEvent::Delta { delta, tokens }) => {
                self.count(index, |usage| usage.completion_tokens += tokens.len());
                self.delta(index, text_of(&delta), tokens)
            }
            Event::Engine(EngineEvent::Started { prompt_tokens, cached_tokens }) => {
                self.count(index, |usage| *usage = Usage { prompt_tokens, cached_tokens, ..*usage });
                None
            }
            Event::Engine(EngineEvent::Finished { reason, .. }) => {
                let (finish_reason, text) = (Some(finish_reason(reason)), self.echo(index));
                let prompt_token_ids = self.prompt_token_ids(index);
                Some(Choice {
                    index,
                    text,
                    logprobs: None,
                    finish_reason,
                    token_ids: None,
                    prompt_token_ids,
                    prompt_logprobs: None,
                })
            }
            Event::Engine(
                EngineEvent::Alignment(_)
                | EngineEvent::Hidden(_)
                | EngineEvent::TokenLogits(_)
                | EngineEvent::Progress { .. }
                | EngineEvent::Failed(_),
            )
            | Event::Speech(_)
            | Event::Tool(_)
            | Event::Failed(_) => None,
        };
        if let Some(choice) = choice {
            frames.data(&self.chunk(vec![choice], None));
        }
    }

    fn finish(&mut self, usage: Usage, frames: &mut Frames) {
        if self.include.usage != StreamUsage::Omit {
            frames.data(&self.chunk(Vec::new(), Some(usage)));
        }
        done(frames);
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        failed(error, frames);
    }

    fn full(mut self, completions: Vec<Completion>, usage: Usage) -> JsonBody {
        let timings = completions.first().and_then(|first| self.include.timings(&first.timed));
        let mut choices: Vec<Choice> = Vec::new();
        let mut rest = completions.into_iter().enumerate().peekable();
        while rest.peek().is_some() {
            let mut of_prompt: Vec<(usize, Completion)> =
                rest.by_ref().take(self.per_prompt.max(1)).collect();
            if self.returned < of_prompt.len() {
                of_prompt.sort_by(|(_, a), (_, b)| mean_logprob(b).total_cmp(&mean_logprob(a)));
                of_prompt.truncate(self.returned);
            }
            for (at, completion) in of_prompt {
                choices.push(Choice { index: choices.len(), ..self.full_choice(at, completion) });
            }
        }
        let kv_transfer_params = self.include.kv_transfer.params(&self.header.id);
        JsonBody::of(&Chunk {
            timings,
            kv_transfer_params,
            ..self.body(choices, Some(Some(self.include.usage_of(usage))))
        })
    }
}
