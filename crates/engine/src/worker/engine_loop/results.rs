//! The tokens of a step: which were accepted, which must follow, and which sequences end with them.

use omnibus_core::{SequenceId, SequenceOutput, Stop};
use omnibus_grammar::{Forced, MatchState};

use super::in_flight::InFlightStep;
use super::{ActiveJob, EngineLoop};
use crate::message::TokenLogprobs;
use crate::speculation::DraftUsage;
use crate::worker::outcome::AnswerPlace;
use crate::worker::proposer::{Verified, verify};

/// What a step yields.
#[derive(Default)]
pub(super) struct StepTokens {
    /// Each sampled sequence's output.
    pub(super) outputs: Vec<SequenceOutput>,
    /// All accepted tokens, in order.
    pub(super) accepted: Vec<(SequenceId, TokenLogprobs)>,
    /// Tokens that must follow them.
    pub(super) forced: Vec<(SequenceId, Forced)>,
}

impl ActiveJob {
    /// Where its next token is.
    fn place(&self) -> AnswerPlace<'_> {
        let at = self.reported.saturating_sub(self.job.prompt);
        AnswerPlace { seed: self.job.id.0, at, recorded: &self.job.prediction }
    }
}

impl EngineLoop {
    /// Verifies draft tokens, and matches the accepted ones with the sequences' grammars.
    pub(super) fn verify(&mut self, step: &InFlightStep, sampled: Vec<Option<TokenLogprobs>>) -> StepTokens {
        let mut result = StepTokens::default();
        let mut sampled = sampled.into_iter();
        for (sequence, drafts) in &step.samples {
            let mut rows: Vec<Option<TokenLogprobs>> = sampled.by_ref().take(1 + drafts.len()).collect();
            let active = self.jobs.get(sequence);
            if let (Some(of), Some(active)) = (&self.drafts, active) {
                of.decide(active.place(), drafts, &mut rows);
            }
            let stop_tokens = active.map(|active| active.job.stop_tokens.as_slice());
            let Verified { tokens, stops } = verify(drafts, &rows, stop_tokens.unwrap_or_default());
            let Some(mut tokens) = tokens else {
                result.outputs.push(SequenceOutput::Failed);
                continue;
            };
            if step.superseded.contains(sequence) {
                result.outputs.push(SequenceOutput::Superseded);
                continue;
            }
            let mut stop = if stops { Stop::Yes } else { Stop::No };
            if stop == Stop::No && self.grammars.contains(*sequence) {
                let most = self.forced_max(*sequence, tokens.len());
                let Ok((taken, forced)) = self.grammars.accept(*sequence, &tokens, most) else {
                    result.outputs.push(SequenceOutput::Failed);
                    continue;
                };
                tokens.truncate(taken);
                match (forced.tokens.is_empty(), forced.state) {
                    (true, MatchState::Open) => {}
                    (true, MatchState::Finished) => stop = Stop::Yes,
                    (false, _) => result.forced.push((*sequence, forced)),
                }
            }
            if let Some(active) = self.jobs.get_mut(sequence) {
                let accepted = tokens.len() - 1;
                active.drafts += DraftUsage { accepted, rejected: drafts.len() - accepted };
            }
            let rows = rows.into_iter().flatten().take(tokens.len());
            result.accepted.extend(rows.map(|token| (*sequence, token)));
            result.outputs.push(SequenceOutput::Accepted { tokens, stop });
        }
        self.grammars.start_masks();
        result
    }

    /// How many tokens may be appended to a sequence without sampling, after those just sampled. One is left to sample
    /// below its limit. Where log-probabilities were requested each token is sampled, since they need a forward pass.
    fn forced_max(&self, sequence: SequenceId, sampled: usize) -> usize {
        let Some(active) = self.jobs.get(&sequence).filter(|active| active.job.logprobs.is_none()) else {
            return 0;
        };
        active.max_tokens.saturating_sub(active.reported + sampled + 1)
    }

    /// Appends tokens that must follow.
    pub(super) fn force(&mut self, sequence: SequenceId, forced: &Forced) {
        let Some(active) = self.jobs.get(&sequence) else { return };
        let ends = |token: &u32| active.job.stop_tokens.binary_search(token).is_ok();
        let (tokens, stop) = match forced.tokens.iter().position(ends) {
            Some(at) => (forced.tokens.get(..=at).unwrap_or_default(), Stop::Yes),
            None if forced.state == MatchState::Finished => (&forced.tokens[..], Stop::Yes),
            None => (&forced.tokens[..], Stop::No),
        };
        let in_flight =
            self.in_flight.iter_mut().filter(|step| step.samples.iter().any(|(id, _)| *id == sequence));
        in_flight.for_each(|step| _ = step.superseded.insert(sequence));
        for event in self.scheduler.force(sequence, tokens, stop) {
            match event {
                omnibus_core::Event::Token { sequence, token } => {
                    let token = TokenLogprobs { token, logprob: None, top: Vec::new() };
                    self.handle_token(sequence, token);
                }
                other => self.handle_event(other),
            }
        }
    }
}
