//! The cost of draft tokens that a model computes, learned from measured calls.

use serde::{Deserialize, Serialize};

use super::{Moments, after, trust};
use crate::request::Tick;

/// `base + round · rounds + row · rows`, in microseconds: a round computes a draft token of each sequence, after those before it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DraftCost {
    /// Of each call.
    #[serde(default)]
    pub base_us: f64,
    /// Of each round.
    pub round_us: f64,
    /// Of each row of a round, tokens that the draft model had not seen included.
    pub row_us: f64,
    /// Calls it was fitted to.
    pub samples: u64,
    /// The recent prediction error, as a share of the time taken.
    pub error_ratio: f64,
    /// The fit's state.
    #[serde(skip)]
    moments: Moments<3>,
}

/// Calls that are not believed: a GPU compiles kernels in the first ones, and what seems dear is not tried again for long.
const CALLS_MIN: u64 = 16;

/// What drafting computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DraftLoad {
    /// Passes of the draft model, one after the other.
    pub rounds: usize,
    /// Rows of all of them.
    pub rows: usize,
}

impl DraftCost {
    /// Expected microseconds. Zero before a few calls were measured, and of no round.
    pub fn predict(&self, load: DraftLoad) -> f64 {
        if self.samples < CALLS_MIN || load.rounds == 0 {
            return 0.0;
        }
        self.base_us + self.round_us * load.rounds as f64 + self.row_us * load.rows as f64
    }

    /// Learns from a measured call.
    pub(super) fn learn(&mut self, load: DraftLoad, took: Tick) {
        if load.rounds == 0 {
            return;
        }
        let (took, expected) = ((took as f64).max(1.0), self.predict(load));
        let off = (expected - took).abs() / took;
        let weight = trust(self.samples, self.error_ratio, off) / (took * took);
        self.error_ratio = after(self.samples, self.error_ratio, off);
        self.moments.add([load.rounds as f64, load.rows as f64, 1.0], took, weight);
        self.samples += 1;
        let mut found = [self.round_us, self.row_us, self.base_us];
        self.moments.fit(&mut found);
        [self.round_us, self.row_us, self.base_us] = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels are compiled in the first calls of each number of rounds.
    #[test]
    fn the_first_calls_do_not_make_drafts_dear() {
        let mut cost = DraftCost::default();
        for (rounds, took) in [(3, 2_000_000), (3, 5_000), (2, 300_000)] {
            cost.learn(DraftLoad { rounds, rows: rounds }, took);
            assert_eq!(cost.predict(DraftLoad { rounds: 3, rows: 3 }), 0.0);
        }
        (0..20).for_each(|at| {
            cost.learn(DraftLoad { rounds: 1 + at % 3, rows: 1 + at % 3 }, 1_500 * (1 + at % 3) as Tick)
        });
        let expected = cost.predict(DraftLoad { rounds: 3, rows: 3 });
        assert!((3_000.0..6_000.0).contains(&expected), "{expected}: {cost:?}");
    }

    #[test]
    fn rounds_and_rows_have_their_own_costs() {
        let mut cost = DraftCost::default();
        assert_eq!(cost.predict(DraftLoad { rounds: 3, rows: 9 }), 0.0);
        for at in 0..200 {
            let load = DraftLoad { rounds: 1 + at % 5, rows: (1 + at % 5) * (1 + at % 7) };
            cost.learn(load, (900 * load.rounds + 100 * load.rows) as Tick);
        }
        let expected = cost.predict(DraftLoad { rounds: 4, rows: 40 });
        assert!((expected - 7_600.0).abs() < 100.0, "{expected}: {cost:?}");
    }
}
