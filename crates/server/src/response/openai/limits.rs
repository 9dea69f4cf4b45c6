//! Headers with what is left of a key's limits, as OpenAI's clients know them.

use std::time::Duration;

use crate::keys::{Level, Levels};

/// Names that responses may have.
const NAMES: &[&str] = &[
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
];

/// The headers of a response.
pub fn headers(levels: &Levels) -> Vec<(&'static str, String)> {
    let values = |level: Level| [level.limit.to_string(), level.remaining.to_string(), duration(level.reset)];
    let (requests, tokens) = NAMES.split_at(3);
    let named = |names: &'static [&'static str], level: Option<Level>| {
        let values = level.map(values).into_iter().flatten();
        names.iter().copied().zip(values).collect::<Vec<_>>()
    };
    [named(requests, levels.requests), named(tokens, levels.tokens)].concat()
}

/// As in `120ms`, `7s` and `6m0s`.
fn duration(of: Duration) -> String {
    let seconds = of.as_secs_f64().ceil();
    match seconds as u64 {
        0 => "0s".to_owned(),
        1 if of.as_secs() == 0 => format!("{}ms", of.as_millis().max(1)),
        seconds @ 1..=59 => format!("{seconds}s"),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_words() {
        let check = |millis: u64, text: &str| assert_eq!(duration(Duration::from_millis(millis)), text);
        check(0, "0s");
        check(120, "120ms");
        check(1_000, "1s");
        check(6_500, "7s");
        check(60_000, "1m0s");
        check(359_001, "6m0s");
    }

    #[test]
    fn only_limits_that_there_are_have_headers() {
        let level = Level { limit: 60, remaining: 59, reset: Duration::from_secs(1) };
        let levels = Levels { requests: None, tokens: Some(level) };
        let expected = ["60", "59", "1s"].map(str::to_owned);
        assert_eq!(headers(&levels), NAMES[3..].iter().copied().zip(expected).collect::<Vec<_>>());
        assert_eq!(headers(&Levels::default()), []);
    }
}
