//! Recorded answers, given again: which tokens follow is known, so that drafts are as good as with the model that the answers are
//! of, whatever the weights.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use omnibus_engine::{Speculation, TokenReport, TokenRequest, TokenUpdate};
use serde::{Deserialize, Serialize};

use super::BenchEngine;

/// A prompt and its answer, in token ids. Ids above the model's vocabulary are folded into it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// The answer.
    pub answer: Vec<u32>,
}

/// How recorded answers are given.
#[derive(Debug, Clone, Copy)]
pub struct RecordedLoad {
    /// Requests at once.
    pub streams: usize,
    /// Requests of all, which take the recordings in turn.
    pub requests: usize,
    /// Whether they may have draft tokens.
    pub speculation: Speculation,
    /// Only requests of equal salt see each other's prompts and answers. Repetitions of a recording have the next ones.
    pub cache_salt: u128,
}

/// Recorded answers that were given.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RecordedRun {
    /// From the first request to the last answer, prompts included.
    pub seconds: f64,
    /// Of all answers.
    pub tokens: usize,
    /// Tokens of an answer in a step.
    pub tokens_per_step: f64,
}

impl RecordedRun {
    /// Tokens of all answers a second.
    pub fn tokens_per_s(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

impl BenchEngine {
    /// Gives recorded answers, which needs an engine with
    /// [`DraftOutcome::Recorded`](omnibus_engine::DraftOutcome::Recorded). Fails with the reason where one cannot be given in time.
    pub fn give(
        &mut self,
        recordings: &[Recording],
        load: RecordedLoad,
        timeout: Duration,
    ) -> Result<RecordedRun, String> {
        let (begun, deadline) = (Instant::now(), Instant::now() + timeout);
        let vocab = self.engine.vocab_size().max(1) as u32;
        let request = |(number, of): (usize, &Recording)| TokenRequest {
            prompt: of.prompt.iter().map(|token| token % vocab).collect(),
            max_new_tokens: of.answer.len(),
            cache_salt: load.cache_salt + (number / recordings.len().max(1)) as u128,
            speculation: load.speculation,
            recorded: of.answer.iter().map(|token| token % vocab).collect(),
            ..TokenRequest::default()
        };
        let mut waiting = recordings.iter().cycle().take(load.requests).enumerate().map(request);
        let mut running = BTreeSet::new();
        for next in waiting.by_ref().take(load.streams) {
            running.insert(self.submit(next)?);
        }
        let (mut tokens, mut steps) = (0, 0);
        while !running.is_empty() {
            let TokenReport { updates, .. } = self.next(deadline)?;
            let mut answered = BTreeSet::new();
            for (number, update) in updates {
                if !running.contains(&number) {
                    continue;
                }
                match update {
                    TokenUpdate::Started => {}
                    TokenUpdate::Token => {
                        tokens += 1;
                        answered.insert(number);
                    }
                    TokenUpdate::Failed(failure) => return Err(failure.to_string()),
                    TokenUpdate::Finished => {
                        running.remove(&number);
                        if let Some(next) = waiting.next() {
                            running.insert(self.submit(next)?);
                        }
                    }
                }
            }
            steps += answered.len();
        }
        let seconds = begun.elapsed().as_secs_f64();
        Ok(RecordedRun { seconds, tokens, tokens_per_step: tokens as f64 / steps.max(1) as f64 })
    }
}
