//! The text of one request: from tokens to typed deltas, up to a stop string or the last call.
//!
//! Invariant: stop strings are found in the answer's text only, not in reasoning and not in the arguments of calls. Text
//! that was returned is never taken back.

use std::sync::Arc;

use omnibus_text::{Delta as Parsed, Detokenizer, Keep, OutputParser, SkipSpecial, StopMatcher, Tokenizer};

use crate::digest::digest;
use crate::event::Delta;
use crate::request::{CallLimit, OutputMode, Request};

/// The text of one request so far.
pub(crate) struct OutputText {
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    /// `None` where all text is the answer.
    parser: Option<OutputParser>,
    stops: Vec<String>,
    matcher: StopMatcher,
    request_id: String,
    calls: u64,
    limit: CallLimit,
    /// Tokens that must come before stop strings count.
    unstoppable: usize,
}

/// What a token added.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NewText {
    pub(super) deltas: Vec<Delta>,
    /// What ended the text.
    pub(super) ended: Option<Ended>,
}

/// What ended a text before its last token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// A stop string.
    StopString(String),
    /// The only call that was allowed.
    Call,
}

/// Whether a token is part of the reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Reasoning,
    Answer,
}

impl OutputText {
    pub(super) fn new(tokenizer: Arc<Tokenizer>, parser: Option<OutputParser>, request: &Request) -> Self {
        let stop = &request.stop;
        let limit = match request.output {
            OutputMode::Message { calls } => calls.unwrap_or_default(),
            OutputMode::Text => CallLimit::Any,
        };
        // Special tokens are markers of a message's parts.
        let skip = if parser.is_some() { SkipSpecial::No } else { SkipSpecial::Yes };
        Self {
            detokenizer: Detokenizer::new(Arc::clone(&tokenizer), skip),
            tokenizer,
            parser,
            stops: stop.strings.clone(),
            matcher: StopMatcher::new(stop.strings.clone(), if stop.include { Keep::Yes } else { Keep::No }),
            request_id: request.id.clone(),
            calls: 0,
            limit,
            unstoppable: stop.min_tokens,
        }
    }

    /// The bytes of a token.
    pub(super) fn piece(&self, token: u32) -> Vec<u8> {
        self.tokenizer.id_to_piece(token).unwrap_or_default()
    }

    /// The part that the next token belongs to.
    pub(super) fn part(&self) -> Part {
        match &self.parser {
            Some(parser) if parser.in_reasoning() => Part::Reasoning,
            _ => Part::Answer,
        }
    }

    /// Takes the next token. An end token has no text, also where the text goes on after it.
    pub(super) fn push(&mut self, token: u32) -> NewText {
        if self.parser.is_some() && self.tokenizer.eos_ids().contains(&token) {
            return NewText::default();
        }
        let text = self.detokenizer.push(token);
        let new = self.read(&text);
        self.unstoppable = self.unstoppable.saturating_sub(1);
        new
    }

    /// What was held back, at the end.
    pub(super) fn finish(&mut self) -> NewText {
        let rest = self.detokenizer.finish();
        let mut new = self.read(&rest);
        if new.ended.is_none() {
            let held = self.parser.as_mut().map(OutputParser::finish).unwrap_or_default();
            self.take(held, &mut new);
        }
        if new.ended.is_none() {
            push_text(&mut new.deltas, self.matcher.flush());
        }
        new
    }

    fn read(&mut self, text: &str) -> NewText {
        let parsed = match &mut self.parser {
            Some(parser) => parser.push(text),
            None => vec![Parsed::Text(text.to_owned())],
        };
        let mut new = NewText::default();
        self.take(parsed, &mut new);
        new
    }

    /// Adds parsed deltas, up to what ends the text.
    fn take(&mut self, parsed: Vec<Parsed>, new: &mut NewText) {
        for delta in parsed {
            if let Parsed::Text(text) = delta {
                if self.unstoppable > 0 {
                    push_text(&mut new.deltas, text);
                    continue;
                }
                let stopped = self.matcher.push(&text);
                push_text(&mut new.deltas, stopped.emit);
                if let Some(place) = stopped.matched {
                    new.ended = self.stops.get(place).cloned().map(Ended::StopString);
                    return;
                }
                continue;
            }
            push_text(&mut new.deltas, self.matcher.flush());
            let is_end = matches!(delta, Parsed::ToolCallEnd(_));
            new.deltas.push(self.typed(delta));
            if is_end && self.limit == CallLimit::One {
                new.ended = Some(Ended::Call);
                return;
            }
        }
    }

    fn typed(&mut self, delta: Parsed) -> Delta {
        match delta {
            Parsed::Text(text) => Delta::Text(text),
            Parsed::Reasoning(text) => Delta::Reasoning(text),
            Parsed::ToolCallStart { id, name } => {
                let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| self.call_id());
                self.calls += 1;
                Delta::ToolCallStart { id, name }
            }
            Parsed::ToolCallArguments(json) => Delta::ToolCallArguments(json),
            Parsed::ToolCallEnd(ending) => Delta::ToolCallEnd(ending),
        }
    }

    /// The id of a call whose format has none.
    fn call_id(&self) -> String {
        let number = digest(&[b"call", self.request_id.as_bytes(), &self.calls.to_le_bytes()]);
        format!("call_{number:032x}").chars().take(29).collect()
    }
}

fn push_text(deltas: &mut Vec<Delta>, text: String) {
    if !text.is_empty() {
        deltas.push(Delta::Text(text));
    }
}

#[cfg(test)]
mod tests;
