//! The limits of a key, and how a request at one is refused.

use std::time::Duration;

/// Limits of one key; `None` is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KeyLimits {
    /// Requests a minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens of prompts and completions a minute. A request may take more than is left; the next ones wait for it.
    pub tokens_per_minute: Option<u64>,
    /// Responses that are generated at once.
    pub streams: Option<usize>,
    /// The part of the queue's places that its sequences may take, above 0 and at most 1.
    pub queue_share: Option<f64>,
}

impl KeyLimits {
    /// Places of the key in a queue. It has one at least.
    pub fn queue_places(&self, places: usize) -> usize {
        match self.queue_share {
            Some(share) => ((places as f64 * share).ceil() as usize).max(1),
            None => usize::MAX,
        }
    }
}

/// The limit that a request is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    /// Requests a minute.
    Requests {
        /// How many.
        limit: u64,
        /// Until there is one again.
        wait: Duration,
    },
    /// Tokens a minute.
    Tokens {
        /// How many.
        limit: u64,
        /// Until there is one again.
        wait: Duration,
    },
    /// Responses at once.
    Streams {
        /// How many.
        limit: usize,
    },
    /// Sequences in the queue.
    QueueShare {
        /// How many.
        limit: usize,
    },
}

/// When to retry where it depends on when other requests end.
const RETRY: Duration = Duration::from_secs(1);

impl Exceeded {
    /// Time after which a request may pass.
    pub fn wait(&self) -> Duration {
        match self {
            Self::Requests { wait, .. } | Self::Tokens { wait, .. } => *wait,
            Self::Streams { .. } | Self::QueueShare { .. } => RETRY,
        }
    }

    /// The limit in words, after "this key may have at most".
    pub fn about(&self) -> String {
        match self {
            Self::Requests { limit, .. } => format!("{limit} requests a minute"),
            Self::Tokens { limit, .. } => format!("{limit} tokens a minute"),
            Self::Streams { limit } => format!("{limit} responses at once"),
            Self::QueueShare { limit } => format!("{limit} sequences in the queue"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_queue_has_one_place_at_least() {
        let places =
            |share, queue| KeyLimits { queue_share: share, ..KeyLimits::default() }.queue_places(queue);
        assert_eq!(places(Some(0.5), 64), 32);
        assert_eq!(places(Some(0.01), 10), 1);
        assert_eq!(places(Some(1.0), 0), 1);
        assert_eq!(places(None, 10), usize::MAX);
    }
}
