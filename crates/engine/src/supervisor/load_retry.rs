//! Retries of failed model loads: when the next one starts, and when waiting requests are refused.
//!
//! Invariant: no processes, no clock. Retries never end: a model's file can be repaired.

use std::time::Duration;

use crate::status::RetryState;

/// After the first failure. It doubles with each.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Upper bound of the pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Failures after which requests are refused instead of held: after about six seconds of pauses, plus the loads' own
/// time.
const MAX_ATTEMPTS: u32 = 6;

/// Consecutive failed loads.
#[derive(Debug, Default)]
pub(super) struct LoadRetry {
    failed: u32,
}

impl LoadRetry {
    /// Counts a failure. Returns the pause before the next load.
    pub(super) fn failed(&mut self) -> Duration {
        let pause = PAUSE_MIN.saturating_mul(2u32.saturating_pow(self.failed)).min(PAUSE_MAX);
        self.failed = self.failed.saturating_add(1);
        pause
    }

    pub(super) fn succeeded(&mut self) {
        self.failed = 0;
    }

    pub(super) fn state(&self) -> RetryState {
        if self.failed < MAX_ATTEMPTS { RetryState::Holding } else { RetryState::Refusing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_requests_are_refused_before_a_stream_has_to_begin() {
        let mut retry = LoadRetry::default();
        let mut waited = Duration::ZERO;
        while retry.state() == RetryState::Holding {
            let pause = retry.failed();
            if retry.state() == RetryState::Holding {
                waited += pause;
            }
        }
        // The server waits ten seconds for a stream's first event before it sends a response head.
        assert!((5.0..8.0).contains(&waited.as_secs_f64()), "{waited:?}");
        let later: Vec<Duration> = (0..100).map(|_| retry.failed()).collect();
        assert!(later.is_sorted() && later.last() == Some(&PAUSE_MAX), "{later:?}");
        retry.succeeded();
        assert_eq!((retry.state(), retry.failed()), (RetryState::Holding, PAUSE_MIN));
    }
}
