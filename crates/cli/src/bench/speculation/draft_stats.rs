//! How many draft tokens were verified and accepted in a round.

use omnibus_engine::{DRAFT_POSITIONS, DraftPosition, Stats};
use omnibus_offline::sim::{DraftWork, MeasuredDrafts};

/// Counters of draft tokens.
#[derive(Debug, Clone, Copy, Default)]
pub struct DraftStats {
    pub generated: u64,
    pub accepted: u64,
    positions: [DraftPosition; DRAFT_POSITIONS],
}

impl DraftStats {
    pub fn of(stats: &Stats) -> Self {
        let scheduler = &stats.scheduler;
        Self {
            generated: scheduler.generated_tokens_total,
            accepted: scheduler.accepted_draft_tokens_total,
            positions: scheduler.draft_positions,
        }
    }

    pub fn since(self, before: &Self) -> Self {
        let mut positions = self.positions;
        for (now, before) in positions.iter_mut().zip(&before.positions) {
            now.verified -= before.verified;
            now.accepted -= before.accepted;
        }
        Self {
            generated: self.generated - before.generated,
            accepted: self.accepted - before.accepted,
            positions,
        }
    }

    /// Of the draft tokens at each position, the share that was accepted where those before it were. The last position counts
    /// all later ones, too, so it has no share.
    pub fn acceptance(&self) -> Vec<f64> {
        let mut before = None;
        let shares = self.positions.iter().map(|position| {
            let reached = before.map_or(position.verified, |accepted: u64| accepted.min(position.verified));
            before = Some(position.accepted);
            position.accepted as f64 / reached.max(1) as f64
        });
        let measured = self.positions.iter().take_while(|position| position.verified > 0).count();
        shares.take(measured.min(DRAFT_POSITIONS - 1)).collect()
    }

    /// Tokens that a decode step gives a sequence, the sampled one included.
    pub fn tokens_per_step(&self) -> f64 {
        self.generated as f64 / self.steps() as f64
    }

    /// Decode steps of all sequences.
    fn steps(&self) -> u64 {
        self.generated.saturating_sub(self.accepted).max(1)
    }

    /// The drafts of a simulated round like this one, of at most so many tokens. `None` where none was verified.
    pub fn measured(&self, most: usize, work: DraftWork) -> Option<MeasuredDrafts> {
        let [first @ .., last] = self.positions.map(|position| position.verified as f64);
        let mut before = self.steps() as f64;
        let share = |verified: f64| verified / std::mem::replace(&mut before, verified).max(1.0);
        let mut offered: Vec<f64> = first.into_iter().map(share).collect();
        // The last position counts all later ones: a chance that goes on has as many.
        let later = last / before.max(1.0);
        offered.push(later / (1.0 + later));
        let accepted = self.acceptance();
        (!accepted.is_empty()).then_some(MeasuredDrafts { offered, accepted, most, work })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_counts_those_whose_predecessors_were_accepted() {
        let position = |verified, accepted| DraftPosition { verified, accepted };
        let mut stats = DraftStats::default();
        stats.positions[..3].copy_from_slice(&[position(100, 80), position(90, 40), position(50, 10)]);
        assert_eq!(stats.acceptance(), [0.8, 0.5, 0.25]);
        stats.positions = [position(100, 100); DRAFT_POSITIONS];
        stats.positions[DRAFT_POSITIONS - 1] = position(300, 290);
        assert_eq!(stats.acceptance(), [1.0; DRAFT_POSITIONS - 1]);
    }

    #[test]
    fn a_simulated_round_offers_as_many_drafts() {
        let mut stats = DraftStats { generated: 300, accepted: 100, ..DraftStats::default() };
        assert_eq!(stats.measured(4, DraftWork::None), None);
        let verified = [100, 100, 50, 50, 50, 50, 50, 50];
        stats.positions = verified.map(|verified| DraftPosition { verified, accepted: verified / 2 });
        let drafts = stats.measured(16, DraftWork::None).unwrap();
        assert_eq!(drafts.offered, [0.5, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 0.5]);
        assert_eq!(drafts.accepted[..3], [0.5, 1.0, 0.5]);
    }
}
