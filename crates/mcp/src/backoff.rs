//! How long a server that failed waits before it is started again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// A server that ran so long is not crashing at its start.
const STABLE: Duration = Duration::from_secs(60);

/// The next pause.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The pause after a failure of a server that ran so long. It doubles with each failure.
    pub fn pause(&mut self, ran: Duration) -> Duration {
        if ran >= STABLE {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_begin_anew_once_it_ran_for_long() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> =
            (0..9).map(|_| backoff.pause(Duration::ZERO).as_millis().try_into().unwrap()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        assert_eq!(backoff.pause(STABLE), FIRST);
    }
}
