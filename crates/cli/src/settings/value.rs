//! Types of settings, and parsing their values.

use super::Config;

/// The type of a setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Any text; the placeholder in help.
    Text(&'static str),
    /// Text that may be repeated; the placeholder in help.
    List(&'static str),
    /// An integer within inclusive limits.
    Count(u64, u64),
    /// An integer up to a limit, or -1 for no limit.
    CountOrAll(u64),
    /// Integers within inclusive limits, with commas between them.
    Counts(u64, u64),
    /// A number within inclusive limits.
    Number(f64, f64),
    /// Bytes, with an optional unit: `512MB`, `4GiB`.
    Bytes,
    /// One of these values.
    Choice(&'static [Choice]),
    /// A flag without a value.
    Switch,
}

/// One of the values of a setting, and what it sets: a value without an effect cannot be written.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// As users write it.
    pub text: &'static str,
    /// Sets it.
    pub apply: fn(&mut Config),
}

/// A value that may be chosen.
pub const fn choice(text: &'static str, apply: fn(&mut Config)) -> Choice {
    Choice { text, apply }
}

/// The choices of one setting have different texts.
impl PartialEq for Choice {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of [`Kind::Text`].
    Text(String),
    /// Of [`Kind::Choice`].
    Choice(Choice),
    /// Of [`Kind::List`].
    List(Vec<String>),
    /// Of [`Kind::Count`], [`Kind::CountOrAll`] (no limit is the largest number) and [`Kind::Bytes`].
    Count(u64),
    /// Of [`Kind::Counts`].
    Counts(Vec<u64>),
    /// Of [`Kind::Number`].
    Number(f64),
    /// Of [`Kind::Switch`].
    Switch(bool),
}

impl Kind {
    /// Reads a value of a file. Fails with a description of valid values.
    pub fn read(self, value: &toml::Value) -> Result<Value, String> {
        match (self, value) {
            (Self::List(_), toml::Value::Array(items)) => {
                let text =
                    |item: &toml::Value| item.as_str().map(str::to_owned).ok_or("must be a list of strings");
                Ok(Value::List(items.iter().map(text).collect::<Result<_, _>>()?))
            }
            (
                Self::Text(_) | Self::Choice(_) | Self::Bytes | Self::List(_) | Self::Counts(..),
                toml::Value::String(text),
            ) => self.parse(text),
            (
                Self::Count(..) | Self::CountOrAll(_) | Self::Number(..) | Self::Bytes,
                toml::Value::Integer(number),
            ) => self.parse(&number.to_string()),
            (Self::Number(..), toml::Value::Float(number)) => self.parse(&number.to_string()),
            (Self::Switch, toml::Value::Boolean(on)) => Ok(Value::Switch(*on)),
            (kind, other) => Err(format!(
                "cannot be {other}; it takes {}",
                kind.placeholder().unwrap_or("true or false".into())
            )),
        }
    }

    /// Parses a value. Fails with a description of valid values.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Text(_) => Ok(Value::Text(text.to_owned())),
            Self::List(_) => Ok(Value::List(text.split(',').map(|item| item.trim().to_owned()).collect())),
            Self::Count(least, most) => {
                let count = text.parse().ok().filter(|count| (least..=most).contains(count));
                count
                    .map(Value::Count)
                    .ok_or_else(|| format!("must be an integer from {least} to {}", limit(most)))
            }
            Self::CountOrAll(_) if text == "-1" => Ok(Value::Count(u64::MAX)),
            Self::CountOrAll(most) => {
                let count = text.parse().ok().filter(|count| *count <= most);
                count.map(Value::Count).ok_or_else(|| format!("must be an integer from 0 to {most}, or -1"))
            }
            Self::Counts(least, most) => {
                let count =
                    |text: &str| text.trim().parse().ok().filter(|count| (least..=most).contains(count));
                let counts: Option<Vec<u64>> = text.split(',').map(count).collect();
                counts.map(Value::Counts).ok_or_else(|| {
                    format!("must be integers from {least} to {}, with commas between them", limit(most))
                })
            }
            Self::Number(least, most) => {
                let number = text.parse().ok().filter(|number| (least..=most).contains(number));
                number.map(Value::Number).ok_or_else(|| format!("must be a number from {least} to {most}"))
            }
            Self::Bytes => {
                bytes(text).map(Value::Count).ok_or_else(|| "must be a size such as 512MB or 4GiB".into())
            }
            Self::Choice(choices) => {
                let known = choices.iter().find(|choice| choice.text == text).copied();
                known
                    .map(Value::Choice)
                    .ok_or_else(|| format!("must be one of {}", texts(choices).join(", ")))
            }
            Self::Switch => match text {
                "true" | "1" | "yes" | "on" => Ok(Value::Switch(true)),
                "false" | "0" | "no" | "off" | "" => Ok(Value::Switch(false)),
                _ => Err("must be true or false".into()),
            },
        }
    }

    /// The placeholder in help; `None` for switches.
    pub fn placeholder(self) -> Option<String> {
        match self {
            Self::Text(name) | Self::List(name) => Some(name.into()),
            Self::Count(..) | Self::CountOrAll(_) => Some("N".into()),
            Self::Counts(..) => Some("N,N".into()),
            Self::Number(..) => Some("X".into()),
            Self::Bytes => Some("SIZE".into()),
            Self::Choice(choices) => Some(texts(choices).join("|")),
            Self::Switch => None,
        }
    }
}

/// The values that may be chosen.
pub fn texts(choices: &[Choice]) -> Vec<&'static str> {
    choices.iter().map(|choice| choice.text).collect()
}

fn limit(most: u64) -> String {
    if most == u64::MAX { "2^64-1".into() } else { most.to_string() }
}

/// Bytes with the unit that is exact and shortest.
fn size(bytes: u64) -> String {
    const UNITS: &[(u64, &str)] = &[
        (1 << 40, "TiB"),
        (1_000_000_000_000, "TB"),
        (1 << 30, "GiB"),
        (1_000_000_000, "GB"),
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
        (1 << 10, "KiB"),
        (1_000, "kB"),
    ];
    let unit = UNITS.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// Decimal units (`MB`) or binary ones (`MiB`). A bare number is bytes.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits =
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let scale: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        "tb" | "t" => 1e12,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        "gib" => 1_073_741_824.0,
        "tib" => 1_099_511_627_776.0,
        _ => return None,
    };
    let bytes = number * scale;
    (bytes.is_finite() && bytes < 2_f64.powi(63)).then_some(bytes as u64)
}

impl Value {
    /// Of a choice.
    pub fn choice(&self) -> Choice {
        match self {
            Self::Choice(choice) => *choice,
            _ => unreachable_kind("a choice"),
        }
    }

    /// Of a text.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.shown(),
        }
    }

    /// Of a list.
    pub fn list(&self) -> Vec<String> {
        match self {
            Self::List(list) => list.clone(),
            other => vec![other.shown()],
        }
    }

    /// Of a count or a size.
    pub fn count(&self) -> u64 {
        match self {
            Self::Count(count) => *count,
            _ => unreachable_kind("a count"),
        }
    }

    /// Of counts.
    pub fn counts(&self) -> Vec<u64> {
        match self {
            Self::Counts(counts) => counts.clone(),
            _ => unreachable_kind("counts"),
        }
    }

    /// Of a number.
    pub fn number(&self) -> f64 {
        match self {
            Self::Number(number) => *number,
            _ => unreachable_kind("a number"),
        }
    }

    /// Of a switch.
    pub fn is_on(&self) -> bool {
        matches!(self, Self::Switch(true))
    }

    /// A size as TOML: in the largest unit that says it exactly.
    pub fn shown_size(&self) -> String {
        match self {
            Self::Count(bytes) => format!("{:?}", size(*bytes)),
            other => other.shown(),
        }
    }

    /// As TOML.
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Choice(choice) => format!("{:?}", choice.text),
            Self::List(list) => format!("{list:?}"),
            Self::Count(count) => count.to_string(),
            Self::Counts(counts) => {
                format!("{:?}", counts.iter().map(u64::to_string).collect::<Vec<_>>().join(","))
            }
            Self::Number(number) => number.to_string(),
            Self::Switch(on) => on.to_string(),
        }
    }
}

/// A row's `set` reads another type than its kind: a bug that the test of the table finds.
fn unreachable_kind<T>(expected: &str) -> T {
    panic!("a setting is read as {expected}, but has another kind")
}
