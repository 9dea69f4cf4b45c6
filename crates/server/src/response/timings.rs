//! Measures how long a choice took, from its events.
//!
//! Invariant: time is an argument.

use std::time::{Duration, Instant};

use omnibus_engine::{DraftUsage, Event as EngineEvent};

use super::Event;
use crate::wire::timings::{PromptProgress, Timings};

/// The times of a choice so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TimedChoice {
    started: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
    prompt_tokens: usize,
    cached_tokens: usize,
    tokens: usize,
    drafts: DraftUsage,
}

impl TimedChoice {
    /// Takes note of an event that came now.
    pub fn add(&mut self, event: &Event, now: Instant) {
        let Event::Engine(event) = event else { return };
        match event {
            EngineEvent::Started { prompt_tokens, cached_tokens } => {
                self.started = Some(now);
                (self.prompt_tokens, self.cached_tokens) = (*prompt_tokens, *cached_tokens);
            }
            EngineEvent::Delta { tokens, .. } => {
                self.first.get_or_insert(now);
                self.last = Some(now);
                // Deltas have their tokens only where these were requested; the end says how many there were.
                self.tokens += tokens.len().max(1);
            }
            EngineEvent::Finished { usage, .. } => {
                // The token that ended it has no delta.
                self.tokens = usage.completion_tokens;
                self.drafts = usage.drafts;
                self.first.get_or_insert(now);
                self.last = Some(now);
            }
            EngineEvent::Progress { .. }
            | EngineEvent::Prompt(_)
            | EngineEvent::Alignment(_)
            | EngineEvent::Hidden(_)
            | EngineEvent::TokenLogits(_)
            | EngineEvent::Failed(_) => {}
        }
    }

    /// The times so far.
    pub fn timings(&self) -> Timings {
        let prompt_n = self.prompt_tokens.saturating_sub(self.cached_tokens);
        let (prompt, predicted) = (between(self.started, self.first), between(self.first, self.last));
        let drafts = self.drafts.accepted + self.drafts.rejected;
        Timings {
            cache_n: self.cached_tokens,
            prompt_n,
            prompt_ms: milliseconds(prompt),
            prompt_per_token_ms: ratio(milliseconds(prompt), prompt_n as f64),
            prompt_per_second: ratio(prompt_n as f64, prompt.as_secs_f64()),
            predicted_n: self.tokens,
            predicted_ms: milliseconds(predicted),
            predicted_per_token_ms: ratio(milliseconds(predicted), self.tokens as f64),
            predicted_per_second: ratio(self.tokens as f64, predicted.as_secs_f64()),
            draft_n: (drafts > 0).then_some(drafts),
            draft_n_accepted: (drafts > 0).then_some(self.drafts.accepted),
        }
    }

    /// How much of the prompt is computed at an event that says so.
    pub fn progress(&self, event: &Event, now: Instant) -> Option<PromptProgress> {
        let processed = match event {
            Event::Engine(EngineEvent::Started { cached_tokens, .. }) => *cached_tokens,
            Event::Engine(EngineEvent::Progress { processed_tokens }) => *processed_tokens,
            Event::Engine(_) | Event::Speech(_) | Event::Tool(_) | Event::Failed(_) => return None,
        };
        let (total, cache) = (self.prompt_tokens, self.cached_tokens);
        let time = between(self.started, Some(now));
        Some(PromptProgress { total, cache, processed, time_ms: time.as_millis() as u64 })
    }
}

fn between(start: Option<Instant>, end: Option<Instant>) -> Duration {
    start.zip(end).map_or(Duration::ZERO, |(start, end)| end.saturating_duration_since(start))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Zero where there is nothing to divide by: JSON has no infinity.
fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use omnibus_engine::{Delta, FinishReason, TokenInfo, Usage};

    use super::*;

    fn tokens(count: usize) -> Event {
        let token = TokenInfo { id: 1, bytes: Vec::new(), logprob: None, top: Vec::new() };
        let (delta, tokens) = (Delta::Text("a".to_owned()), vec![token; count]);
        Event::Engine(EngineEvent::Delta { delta, tokens })
    }

    fn finished(completion_tokens: usize, drafts: DraftUsage) -> Event {
        let usage =
            Usage { prompt_tokens: 100, cached_tokens: 60, completion_tokens, drafts, ..Usage::default() };
        Event::Engine(EngineEvent::Finished { reason: FinishReason::Stop, matched: None, usage })
    }

    const STARTED: Event = Event::Engine(EngineEvent::Started { prompt_tokens: 100, cached_tokens: 60 });

    /// Adds events, each with the milliseconds at which it comes.
    fn timed(events: &[(u64, Event)]) -> TimedChoice {
        let (mut choice, zero) = (TimedChoice::default(), Instant::now());
        events.iter().for_each(|(at, event)| choice.add(event, zero + Duration::from_millis(*at)));
        choice
    }

    #[test]
    fn times_are_those_of_the_prompt_and_of_the_tokens() {
        let drafts = DraftUsage { accepted: 3, rejected: 2 };
        let timings =
            timed(&[(5, STARTED), (25, tokens(1)), (45, tokens(4)), (65, finished(10, drafts))]).timings();
        let want = Timings {
            cache_n: 60,
            prompt_n: 40,
            prompt_ms: 20.0,
            prompt_per_token_ms: 0.5,
            prompt_per_second: 2000.0,
            predicted_n: 10,
            predicted_ms: 40.0,
            predicted_per_token_ms: 4.0,
            predicted_per_second: 250.0,
            draft_n: Some(5),
            draft_n_accepted: Some(3),
        };
        assert_eq!(timings, want);
    }

    #[test]
    fn parts_without_their_tokens_count_until_the_end_says_how_many_there_were() {
        let parts = [(5, STARTED), (25, tokens(0)), (45, tokens(0))];
        assert_eq!(timed(&parts).timings().predicted_n, 2);
        let ended = [parts.as_slice(), &[(50, finished(7, DraftUsage::default()))]].concat();
        assert_eq!(timed(&ended).timings().predicted_n, 7);
    }

    #[test]
    fn nothing_is_divided_by_zero_before_there_are_tokens() {
        let so_far = timed(&[(5, STARTED)]).timings();
        assert_eq!((so_far.prompt_n, so_far.prompt_per_second, so_far.predicted_per_second), (40, 0.0, 0.0));
        let at_once = timed(&[(5, STARTED), (5, finished(0, DraftUsage::default()))]).timings();
        assert_eq!((at_once.predicted_per_token_ms, at_once.draft_n), (0.0, None));
    }

    #[test]
    fn progress_counts_cached_tokens_and_the_time_since_the_start() {
        let zero = Instant::now();
        let mut choice = TimedChoice::default();
        choice.add(&STARTED, zero);
        let at = |processed_tokens| Event::Engine(EngineEvent::Progress { processed_tokens });
        let progress = choice.progress(&at(80), zero + Duration::from_millis(7));
        assert_eq!(progress, Some(PromptProgress { total: 100, cache: 60, processed: 80, time_ms: 7 }));
        assert_eq!(choice.progress(&STARTED, zero).map(|progress| progress.processed), Some(60));
        assert_eq!(choice.progress(&tokens(1), zero), None);
    }
}
