//! Draft tokens as they were measured, for a world that predicts what they gain.

use serde::{Deserialize, Serialize};

use super::Rng;
use crate::cost::DraftLoad;
use crate::drafting::DraftWork;
use crate::plan::Plan;

/// How many draft tokens proposers have, and how many of them are accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredDrafts {
    /// The chance that a proposer has a token for each position of a draft, if it has those before it. The last is that of all later
    /// positions, too.
    pub offered: Vec<f64>,
    /// The chance that the token is accepted, if those before it are, likewise.
    pub accepted: Vec<f64>,
    /// Most tokens of a draft.
    pub most: usize,
    /// What they cost before they are verified.
    pub work: DraftWork,
}

impl MeasuredDrafts {
    /// Tokens that a proposer has.
    pub(super) fn offer(&self, rng: &mut Rng) -> usize {
        run(&self.offered, self.most, rng)
    }

    /// How many of so many draft tokens are accepted.
    pub(super) fn accept(&self, tokens: usize, rng: &mut Rng) -> usize {
        run(&self.accepted, tokens, rng)
    }

    /// What was computed for the draft tokens of a step.
    pub(super) fn load(&self, plan: &Plan) -> DraftLoad {
        if self.work == DraftWork::None {
            return DraftLoad::default();
        }
        let drafts = || plan.scheduled.iter().map(|scheduled| scheduled.draft_tokens());
        DraftLoad { rounds: drafts().max().unwrap_or(0), rows: drafts().sum() }
    }
}

/// How often in a row something happens that has these chances.
fn run(chances: &[f64], most: usize, rng: &mut Rng) -> usize {
    let mut happens = |at: usize| {
        let chance = chances.get(at).or(chances.last()).copied().unwrap_or(0.0);
        rng.below(1 << 20) < (chance * f64::from(1 << 20)) as u64
    };
    (0..most).take_while(|at| happens(*at)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_hold_and_the_last_goes_on() {
        let mut rng = Rng::new(1);
        let drafts =
            MeasuredDrafts { offered: vec![1.0], accepted: vec![0.8, 0.5], most: 3, work: DraftWork::Model };
        assert_eq!(drafts.offer(&mut rng), 3);
        let accepted: Vec<usize> = (0..20_000).map(|_| drafts.accept(3, &mut rng)).collect();
        let mean = accepted.iter().sum::<usize>() as f64 / 20_000.0;
        assert!((mean - (0.8 + 0.4 + 0.2)).abs() < 0.03, "{mean}");
        assert_eq!(run(&[], 3, &mut rng), 0);
    }
}
