//! A bucket of requests or tokens, filled at an even rate up to what a minute allows.
//!
//! Invariant: no clock. Time is an argument.

use std::time::Duration;

const MINUTE_S: f64 = 60.0;

/// What is left of a limit per minute. Below zero after a response that took more than there was.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    level: f64,
    filled_at: Duration,
}

/// A limit at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// What a minute allows.
    pub limit: u64,
    /// What is left of it.
    pub remaining: u64,
    /// Time until all of it is there again.
    pub reset: Duration,
}

impl Bucket {
    /// A full one.
    pub fn full(limit: u64, now: Duration) -> Self {
        Self { level: limit as f64, filled_at: now }
    }

    /// Fills it up to now.
    pub fn fill(&mut self, limit: u64, now: Duration) {
        let elapsed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.level = (self.level + elapsed * limit as f64 / MINUTE_S).min(limit as f64);
        self.filled_at = now;
    }

    /// Time until one can be taken, if there is none now.
    pub fn wait(&self, limit: u64) -> Option<Duration> {
        (self.level < 1.0).then(|| time_for(1.0 - self.level, limit))
    }

    /// Takes an amount, also where there is less.
    pub fn take(&mut self, amount: u64) {
        self.level -= amount as f64;
    }

    /// What is left.
    pub fn level(&self, limit: u64) -> Level {
        Level {
            limit,
            remaining: self.level.max(0.0) as u64,
            reset: time_for((limit as f64 - self.level).max(0.0), limit),
        }
    }
}

/// How long an amount takes to come.
fn time_for(amount: f64, limit: u64) -> Duration {
    let seconds = amount * MINUTE_S / limit.max(1) as f64;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_bucket_fills_at_an_even_rate_up_to_its_limit() {
        let mut bucket = Bucket::full(60, at(0.0));
        bucket.take(60);
        assert_eq!(bucket.wait(60), Some(at(1.0)));
        bucket.fill(60, at(0.5));
        assert_eq!(bucket.wait(60), Some(at(0.5)));
        bucket.fill(60, at(1.0));
        assert_eq!(bucket.wait(60), None);
        assert_eq!(bucket.level(60), Level { limit: 60, remaining: 1, reset: at(59.0) });
        bucket.fill(60, at(1e9));
        assert_eq!(bucket.level(60), Level { limit: 60, remaining: 60, reset: at(0.0) });
    }

    #[test]
    fn what_was_taken_beyond_the_limit_is_waited_for() {
        let mut bucket = Bucket::full(600, at(0.0));
        bucket.take(1_200);
        assert_eq!(bucket.level(600), Level { limit: 600, remaining: 0, reset: at(120.0) });
        assert_eq!(bucket.wait(600), Some(at(60.1)));
    }

    #[test]
    fn another_limit_counts_from_what_is_left() {
        let mut bucket = Bucket::full(10, at(0.0));
        bucket.fill(5, at(0.0));
        assert_eq!(bucket.level(5).remaining, 5, "a lower limit cuts");
        bucket.fill(60, at(1.0));
        assert_eq!(bucket.level(60).remaining, 6, "a higher one fills from there");
    }

    #[test]
    fn a_clock_that_stands_or_an_odd_limit_is_no_failure() {
        let mut bucket = Bucket::full(u64::MAX, at(5.0));
        bucket.take(u64::MAX);
        bucket.fill(u64::MAX, at(1.0));
        assert!(bucket.wait(0).is_some());
    }
}
