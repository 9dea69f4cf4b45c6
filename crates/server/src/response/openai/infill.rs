//! The framer of `POST /infill`, whose format is llama.cpp's: text alone, and the counts at the end.

use std::time::Instant;

use omnibus_engine::{Event as EngineEvent, FinishReason, StopMatch, Usage};

use super::error;
use crate::error::ApiError;
use crate::response::{Completion, Event, Framer, Frames, JsonBody, ResponseHeader, TimedChoice};
use crate::wire::infill::{InfillChunk, Infilled};

/// Frames infills.
#[derive(Debug)]
pub struct InfillFramer {
    header: ResponseHeader,
    timed: TimedChoice,
    end: End,
}

/// How the text ended.
#[derive(Debug, Clone, Default)]
struct End {
    reason: Option<FinishReason>,
    matched: Option<StopMatch>,
}

impl InfillFramer {
    /// The framer of one response.
    pub fn new(header: ResponseHeader) -> Self {
        Self { header, timed: TimedChoice::default(), end: End::default() }
    }

    fn infilled(&self, content: String, usage: Usage) -> Infilled {
        let (stop_type, word) = match (self.end.reason, &self.end.matched) {
            (Some(FinishReason::Stop), Some(StopMatch::String(word))) => ("word", word.clone()),
            (Some(FinishReason::Stop), _) => ("eos", String::new()),
            (Some(FinishReason::Length | FinishReason::Cancelled) | None, _) => ("limit", String::new()),
        };
        Infilled {
            index: 0,
            content,
            stop: true,
            stop_type,
            stopping_word: word,
            model: self.header.model.clone(),
            tokens_predicted: usage.completion_tokens,
            tokens_evaluated: usage.prompt_tokens,
            truncated: false,
            timings: self.timed.timings(),
        }
    }
}

impl Framer for InfillFramer {
    type Body = JsonBody;

    fn start(&mut self, _frames: &mut Frames) {}

    fn event(&mut self, _choice: usize, event: Event, frames: &mut Frames) {
        self.timed.add(&event, Instant::now());
        match event {
            Event::Engine(EngineEvent::Delta { delta, .. }) if !delta.text().is_empty() => {
                let content = delta.text().to_owned();
                frames.data(&InfillChunk { index: 0, content, stop: false });
            }
            Event::Engine(EngineEvent::Finished { reason, matched, .. }) => {
                self.end = End { reason: Some(reason), matched };
            }
            Event::Engine(_) | Event::Speech(_) | Event::Tool(_) | Event::Failed(_) => {}
        }
    }

    fn finish(&mut self, usage: Usage, frames: &mut Frames) {
        frames.data(&self.infilled(String::new(), usage));
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.data(&error::object(error));
    }

    fn full(mut self, completions: Vec<Completion>, usage: Usage) -> JsonBody {
        let Some(completion) = completions.into_iter().next() else {
            return JsonBody::of(&self.infilled(String::new(), usage));
        };
        self.timed = completion.timed;
        self.end = End { reason: completion.finish_reason, matched: completion.matched.clone() };
        JsonBody::of(&self.infilled(completion.text(), usage))
    }
}
