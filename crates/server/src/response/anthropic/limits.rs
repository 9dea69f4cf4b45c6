//! Headers with what is left of a key's limits, as Anthropic's clients know them.

use std::time::Duration;

use jiff::{Timestamp, Unit};

use crate::keys::{Level, Levels};

/// Names that responses may have.
const NAMES: &[&str] = &[
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
];

/// The headers of a response.
pub fn headers(levels: &Levels) -> Vec<(&'static str, String)> {
    let values = |level: Level| {
        [level.limit.to_string(), level.remaining.to_string(), time_after(Timestamp::now(), level.reset)]
    };
    let (requests, tokens) = NAMES.split_at(3);
    let named = |names: &'static [&'static str], level: Option<Level>| {
        let values = level.map(values).into_iter().flatten();
        names.iter().copied().zip(values).collect::<Vec<_>>()
    };
    [named(requests, levels.requests), named(tokens, levels.tokens)].concat()
}

/// A time in the form of RFC 3339, in whole seconds. A time that no calendar has is now.
fn time_after(now: Timestamp, wait: Duration) -> String {
    let then = now.checked_add(wait).unwrap_or(now);
    then.round(Unit::Second).unwrap_or(then).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_a_time() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(time_after(now, Duration::from_millis(90_400)), "1970-01-01T00:01:30Z");
        assert_eq!(time_after(now, Duration::MAX), "1970-01-01T00:00:00Z");
    }
}
