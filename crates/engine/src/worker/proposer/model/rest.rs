//! When a draft head rests: while its drafts are not worth their time, it is shown nothing and no states are kept for it, so that a step
//! is the plain one.
//!
//! Invariant: a head that rests offers nothing. It wakes by itself, so that a load at which drafts pay is noticed.

/// Steps without draft tokens after which a head rests.
const IDLE_STEPS: u32 = 64;
/// Steps that it rests first, unless the batch becomes much smaller; twice as many each time that it was woken for nothing.
const REST_STEPS: u32 = 512;
/// The most.
const REST_STEPS_MAX: u32 = 16_384;
/// Steps without draft tokens that one with them makes up for: a trial alone does not keep a head awake.
const STEPS_OF_A_DRAFT: u32 = 8;

/// Whether a head rests.
#[derive(Debug)]
pub(super) struct Rest {
    /// Steps without draft tokens.
    idle: u32,
    /// Steps with draft tokens since it was woken.
    drafted: u32,
    /// Steps of its next rest.
    next: u32,
    now: Option<Resting>,
}

impl Default for Rest {
    fn default() -> Self {
        Self { idle: 0, drafted: 0, next: REST_STEPS, now: None }
    }
}

#[derive(Debug, Clone, Copy)]
struct Resting {
    /// Steps that are left.
    left: u32,
    /// Sequences that decoded when it began.
    batch: usize,
}

impl Rest {
    /// A step with so many sequences that decode is planned. `drafts`: how many of them verify draft tokens of this head.
    pub(super) fn see_step(&mut self, batch: usize, drafts: usize) {
        if batch == 0 {
            return;
        }
        self.idle = match drafts {
            0 => self.idle + 1,
            _ => self.idle.saturating_sub(STEPS_OF_A_DRAFT),
        };
        self.drafted += u32::from(drafts > 0);
        if self.drafted >= IDLE_STEPS {
            self.next = REST_STEPS;
        }
        match &mut self.now {
            Some(now) if drafts > 0 || now.left == 0 || 2 * batch <= now.batch => {
                *self = Self { next: self.next, ..Self::default() };
            }
            Some(now) => now.left -= 1,
            None if self.idle >= IDLE_STEPS => {
                self.now = Some(Resting { left: self.next, batch });
                self.next = (2 * self.next).min(REST_STEPS_MAX);
            }
            None => {}
        }
    }

    /// Whether it is shown nothing now.
    pub(super) fn rests(&self) -> bool {
        self.now.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(steps: u32, batch: usize) -> Rest {
        let mut rest = Rest::default();
        (0..steps).for_each(|_| rest.see_step(batch, 0));
        rest
    }

    #[test]
    fn a_head_without_drafts_rests_and_wakes() {
        assert!(!after(IDLE_STEPS - 1, 16).rests());
        assert!(after(IDLE_STEPS, 16).rests());
        assert!(after(IDLE_STEPS + REST_STEPS, 16).rests());
        assert!(!after(IDLE_STEPS + REST_STEPS + 1, 16).rests());
    }

    #[test]
    fn a_smaller_batch_wakes_it() {
        let mut rest = after(IDLE_STEPS, 16);
        rest.see_step(9, 0);
        assert!(rest.rests());
        rest.see_step(8, 0);
        assert!(!rest.rests());
    }

    #[test]
    fn drafts_keep_it_awake_and_a_single_one_does_not() {
        let mut rest = after(IDLE_STEPS - 1, 16);
        (0..500).for_each(|at| rest.see_step(16, at % 8));
        assert!(!rest.rests());
        let mut rest = after(IDLE_STEPS - 1, 16);
        rest.see_step(16, 2);
        (0..STEPS_OF_A_DRAFT + 1).for_each(|_| rest.see_step(16, 0));
        assert!(rest.rests());
    }

    /// Steps of each rest while a load has no drafts.
    fn rests(rest: &mut Rest, count: usize) -> Vec<u32> {
        let mut found = Vec::new();
        while found.len() < count {
            let mut steps = 0;
            while rest.rests() {
                rest.see_step(16, 0);
                steps += 1;
            }
            found.extend((steps > 0).then_some(steps));
            rest.see_step(16, 0);
        }
        found
    }

    #[test]
    fn a_head_that_is_woken_for_nothing_rests_longer() {
        let mut rest = Rest::default();
        let found = rests(&mut rest, 4);
        assert_eq!(found, [1, 2, 4, 8].map(|times| times * REST_STEPS + 1));
        while !rest.rests() {
            rest.see_step(16, 0);
        }
        // With few streams it drafts for a while.
        (0..IDLE_STEPS + 1).for_each(|_| rest.see_step(1, 1));
        assert_eq!(rests(&mut rest, 1), [REST_STEPS + 1]);
    }

    #[test]
    fn steps_of_prompts_alone_count_for_nothing() {
        assert!(!after(10_000, 0).rests());
    }
}
