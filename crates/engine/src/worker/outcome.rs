//! What counts as sampled, where a benchmark decides it.

use omnibus_core::random::{Rng, nth};

use crate::message::TokenLogprobs;
use crate::speculation::DraftOutcome;

/// The place of a step's first row in its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerPlace<'a> {
    /// Of the request.
    pub(super) seed: u64,
    /// Tokens of the answer before it.
    pub(super) at: usize,
    /// The answer that is known.
    pub(super) recorded: &'a [u32],
}

impl DraftOutcome {
    /// Changes what was sampled for the newest token and for each draft token to what counts as sampled.
    pub(super) fn decide(&self, place: AnswerPlace<'_>, drafts: &[u32], rows: &mut [Option<TokenLogprobs>]) {
        match self {
            Self::Sampled => {}
            Self::Recorded => {
                let recorded = place.recorded.get(place.at..).unwrap_or_default();
                let rows =
                    rows.iter_mut().zip(recorded).filter_map(|(row, token)| Some((row.as_mut()?, token)));
                rows.for_each(|(row, token)| row.token = *token);
            }
            Self::Synthetic(percent) => {
                let Some(last) = percent.last() else { return };
                let mut chances = Rng::new(nth(place.seed, place.at as u64));
                let percent = percent.iter().chain(std::iter::repeat(last));
                for ((row, draft), percent) in rows.iter_mut().flatten().zip(drafts).zip(percent) {
                    let is_accepted = chances.below(100) < u64::from(*percent);
                    match (is_accepted, row.token == *draft) {
                        (true, false) => row.token = *draft,
                        (false, true) => row.token = if *draft == 0 { 1 } else { draft - 1 },
                        (true, true) | (false, false) => {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens that count as sampled, where seven was for each row.
    fn decided(outcome: &DraftOutcome, place: AnswerPlace<'_>, drafts: &[u32]) -> Vec<u32> {
        let row = Some(TokenLogprobs { token: 7, logprob: None, top: Vec::new() });
        let mut rows = vec![row; 1 + drafts.len()];
        outcome.decide(place, drafts, &mut rows);
        rows.into_iter().flatten().map(|row| row.token).collect()
    }

    #[test]
    fn a_recorded_answer_counts_as_sampled() {
        let place = AnswerPlace { seed: 1, at: 1, recorded: &[10, 11, 12] };
        assert_eq!(decided(&DraftOutcome::Recorded, place, &[11, 5, 6]), [11, 12, 7, 7]);
        assert_eq!(decided(&DraftOutcome::Sampled, place, &[11]), [7, 7]);
    }

    #[test]
    fn so_many_percent_of_the_drafts_at_each_position_are_accepted() {
        let outcome = DraftOutcome::Synthetic(vec![80, 50]);
        let (drafts, mut tried, mut accepted) = ([7, 3, 0], [0; 3], [0; 3]);
        for at in 0..10_000 {
            let rows = decided(&outcome, AnswerPlace { seed: 1, at, recorded: &[] }, &drafts);
            let right = rows.iter().zip(&drafts).take_while(|(row, draft)| row == draft).count();
            (0..=right.min(2)).for_each(|position| tried[position] += 1);
            (0..right).for_each(|position| accepted[position] += 1);
        }
        let shares = [0, 1, 2].map(|at| f64::from(accepted[at]) / f64::from(tried[at]));
        for (share, expected) in shares.into_iter().zip([0.8, 0.5, 0.5]) {
            assert!((share - expected).abs() < 0.03, "{shares:?}");
        }
        for (percent, expected) in [(0, [6, 7, 7, 7]), (100, [7, 3, 0, 7])] {
            let place = AnswerPlace { seed: 2, at: 5, recorded: &[] };
            assert_eq!(decided(&DraftOutcome::Synthetic(vec![percent]), place, &drafts), expected);
        }
    }
}
