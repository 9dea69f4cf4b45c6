//! What used the energy: the rows of steps, or idle time.
//!
//! Invariant: no clock and no sensor; what the meter shows is an argument. Every microjoule between two of its values goes
//! to the rows of one step or to idle time, so the parts add up to the whole.

/// What a row computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Tokens of the prompt.
    Prompt,
    /// Tokens of the completion, draft tokens included.
    Completion,
}

/// What a sequence has in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<K> {
    /// The sequence.
    pub key: K,
    /// What it computes.
    pub phase: Phase,
    /// How many tokens.
    pub tokens: usize,
}

/// Energy by use, in microjoules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Of steps, for tokens of prompts.
    pub prompt: u64,
    /// Of steps, for tokens of completions.
    pub completion: u64,
    /// Between steps.
    pub idle: u64,
}

impl Totals {
    /// Adds energy of a phase.
    pub fn add(&mut self, phase: Phase, microjoules: u64) {
        match phase {
            Phase::Prompt => self.prompt += microjoules,
            Phase::Completion => self.completion += microjoules,
        }
    }
}

/// Shares energy out.
#[derive(Debug, Clone, Default)]
pub struct Attribution {
    /// The value of the meter up to which all energy is shared out.
    shared: u64,
    totals: Totals,
}

impl Attribution {
    /// An attribution that begins where the meter shows this.
    pub fn new(meter: u64) -> Self {
        Self { shared: meter, totals: Totals::default() }
    }

    /// Nothing was computed until the meter showed this.
    pub fn idle(&mut self, meter: u64) {
        self.totals.idle += self.take(meter);
    }

    /// A step ended when the meter showed this. The energy since the last entry is shared by its rows in proportion to their
    /// tokens. Returns the part of each row, in microjoules and in order.
    pub fn step<K>(&mut self, meter: u64, rows: &[Row<K>]) -> Vec<u64> {
        let whole = self.take(meter);
        let all: usize = rows.iter().map(|row| row.tokens).sum();
        if all == 0 {
            self.totals.idle += whole;
            return vec![0; rows.len()];
        }
        // What the rows up to here get together is rounded, not what each gets: so nothing is lost.
        let until = |tokens: usize| (u128::from(whole) * tokens as u128 / all as u128) as u64;
        let mut before = 0;
        let parts = rows.iter().map(|row| {
            let after = before + row.tokens;
            let part = until(after) - until(before);
            before = after;
            self.totals.add(row.phase, part);
            part
        });
        parts.collect()
    }

    /// All energy so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn take(&mut self, meter: u64) -> u64 {
        let since = meter.saturating_sub(self.shared);
        self.shared = self.shared.max(meter);
        since
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(key: usize, (is_prompt, tokens): (bool, usize)) -> Row<usize> {
        Row { key, phase: if is_prompt { Phase::Prompt } else { Phase::Completion }, tokens }
    }

    #[test]
    fn rows_pay_for_their_tokens_and_idle_time_is_apart() {
        let mut attribution = Attribution::new(1000);
        attribution.idle(1500);
        let parts = attribution.step(2500, &[row(0, (true, 8)), row(1, (false, 1)), row(2, (false, 1))]);
        assert_eq!(parts, [800, 100, 100]);
        assert_eq!(attribution.totals(), Totals { prompt: 800, completion: 200, idle: 500 });
    }

    #[test]
    fn a_step_without_rows_is_idle() {
        let mut attribution = Attribution::default();
        assert!(attribution.step::<usize>(7, &[]).is_empty());
        assert_eq!(attribution.totals().idle, 7);
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_whole(
            start in 0u64..1_000_000,
            entries in prop::collection::vec(
                (any::<u32>(), any::<bool>(), prop::collection::vec((any::<bool>(), 0usize..9000), 0..80)),
                0..40,
            ),
        ) {
            let (mut attribution, mut meter, mut parts) = (Attribution::new(start), start, 0);
            for (used, is_step, rows) in entries {
                meter += u64::from(used);
                let rows: Vec<_> = rows.into_iter().enumerate().map(|(key, of)| row(key, of)).collect();
                match is_step {
                    true => parts += attribution.step(meter, &rows).iter().sum::<u64>(),
                    false => attribution.idle(meter),
                }
            }
            let Totals { prompt, completion, idle } = attribution.totals();
            prop_assert_eq!(prompt + completion, parts);
            prop_assert_eq!(prompt + completion + idle, meter - start);
        }

        #[test]
        fn rows_with_equal_tokens_pay_equally(used: u32, rows in 1usize..300) {
            let rows: Vec<_> = (0..rows).map(|key| row(key, (false, 3))).collect();
            let parts = Attribution::default().step(u64::from(used), &rows);
            let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
            prop_assert!(most - least <= 1);
        }
    }
}
