//! `keep_alive`: how long a model stays loaded after a request, in Go's notation of durations or in seconds.

use std::time::Duration;

use serde_json::Value;

use super::FIELDS;
use crate::engine::TimeToLive;
use crate::error::ApiError;
use crate::wire::fields::{Fields, type_error};

/// How long a model stays loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeepAlive {
    /// As the server decides.
    #[default]
    Default,
    /// As long as the server runs.
    Forever,
    /// So long; not at all if zero.
    For(Duration),
}

/// Units of Go's durations, in seconds. One that begins another comes after it.
const UNITS: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

impl KeepAlive {
    /// Takes the field out of a body.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let at = fields.at("keep_alive");
        let seconds = match fields.value("keep_alive") {
            None => return Ok(Self::Default),
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => seconds(&text),
            Some(other) => return Err(type_error(&at, "a duration or a number of seconds", &other)),
        };
        let seconds = seconds.filter(|seconds| seconds.is_finite()).ok_or_else(|| {
            ApiError::invalid(
                &at,
                format!("`{at}` must be a duration such as \"5m\", or a number of seconds"),
            )
        })?;
        if seconds < 0.0 {
            return Ok(Self::Forever);
        }
        // What is too long for the type is for ever, too.
        Ok(Duration::try_from_secs_f64(seconds).map_or(Self::Forever, Self::For))
    }

    /// That of a body, whatever else is in it.
    pub fn of(body: &Value) -> Result<Self, ApiError> {
        let given = body.get("keep_alive").map(|value| ("keep_alive".to_owned(), value.clone()));
        Self::read(&mut Fields::tolerant(Value::Object(given.into_iter().collect()), "", &[FIELDS])?)
    }

    /// As the engine takes it.
    pub fn time_to_live(self) -> TimeToLive {
        match self {
            Self::Default => TimeToLive::Configured,
            Self::Forever => TimeToLive::Forever,
            Self::For(time) => TimeToLive::For(time),
        }
    }

    /// Whether the model is to be unloaded.
    pub fn unloads(self) -> bool {
        self == Self::For(Duration::ZERO)
    }
}

/// `1h30m`, `-1m`, `0`, or a number of seconds.
fn seconds(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if let Ok(number) = rest.parse::<u64>() {
        return Some(sign * number as f64);
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(digits)?;
        let (unit, scale) =
            UNITS.iter().find(|(unit, _)| after.starts_with(unit) && is_whole(after, unit))?;
        total += number.parse::<f64>().ok()? * scale;
        rest = after.strip_prefix(unit)?;
    }
    (!text.is_empty()).then_some(sign * total)
}

/// Whether a text's first letters are this unit and no longer one.
fn is_whole(text: &str, unit: &str) -> bool {
    text.strip_prefix(unit).is_some_and(|rest| rest.chars().next().is_none_or(|next| !next.is_alphabetic()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<KeepAlive, ApiError> {
        KeepAlive::read(&mut Fields::tolerant(json!({"keep_alive": value}), "", &[FIELDS]).unwrap())
    }

    #[test]
    fn durations_and_seconds_are_read() {
        let seconds = |seconds| KeepAlive::For(Duration::from_secs_f64(seconds));
        for (value, expected) in [
            (json!("5m"), seconds(300.0)),
            (json!("1h30m"), seconds(5400.0)),
            (json!("1.5s"), seconds(1.5)),
            (json!("250ms"), seconds(0.25)),
            (json!("300"), seconds(300.0)),
            (json!(1800), seconds(1800.0)),
            (json!("0"), seconds(0.0)),
            (json!(0), seconds(0.0)),
            (json!(-1), KeepAlive::Forever),
            (json!("-1m"), KeepAlive::Forever),
            (json!("-1"), KeepAlive::Forever),
            (json!(1e300), KeepAlive::Forever),
            (json!(null), KeepAlive::Default),
        ] {
            assert_eq!(read(value.clone()).unwrap(), expected, "{value}");
        }
        assert!(read(json!("0s")).unwrap().unloads() && !read(json!(1)).unwrap().unloads());
    }

    #[test]
    fn what_is_no_duration_is_refused_by_name() {
        for value in [
            json!("soon"),
            json!(""),
            json!("5 m"),
            json!("5"[1..].to_owned() + "m"),
            json!(true),
            json!("1x"),
        ] {
            assert_eq!(read(value.clone()).unwrap_err().param(), Some("keep_alive"), "{value}");
        }
    }
}
