//! Loads that failed one after the other: when the next is tried, and when nobody is kept waiting for it any more.
//!
//! Invariant: no processes, no clock. However often it fails, it is tried again: a model's file can be mended.

use std::time::Duration;

/// After the first failure. It doubles with each.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// However often it failed.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Failures after which requests are refused instead of held: after some six seconds of pauses, and the loads' own time.
const PATIENCE: u32 = 6;

/// Loads that failed one after the other.
#[derive(Debug, Default)]
pub(super) struct Loads {
    failed: u32,
}

/// Whether requests are held for the next load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hope {
    Left,
    /// They are refused until a load succeeds.
    Lost,
}

impl Loads {
    /// Takes note of a failure. Gives the pause before the next load.
    pub(super) fn failed(&mut self) -> Duration {
        let pause = PAUSE_MIN.saturating_mul(2u32.saturating_pow(self.failed)).min(PAUSE_MAX);
        self.failed = self.failed.saturating_add(1);
        pause
    }

    pub(super) fn succeeded(&mut self) {
        self.failed = 0;
    }

    pub(super) fn hope(&self) -> Hope {
        if self.failed < PATIENCE { Hope::Left } else { Hope::Lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_hope_ends_before_a_stream_has_to_begin() {
        let mut loads = Loads::default();
        let mut waited = Duration::ZERO;
        while loads.hope() == Hope::Left {
            let pause = loads.failed();
            if loads.hope() == Hope::Left {
                waited += pause;
            }
        }
        // The server waits ten seconds for a stream's first event before it promises an answer.
        assert!((5.0..8.0).contains(&waited.as_secs_f64()), "{waited:?}");
        let later: Vec<Duration> = (0..100).map(|_| loads.failed()).collect();
        assert!(later.is_sorted() && later.last() == Some(&PAUSE_MAX), "{later:?}");
        loads.succeeded();
        assert_eq!((loads.hope(), loads.failed()), (Hope::Left, PAUSE_MIN));
    }
}
