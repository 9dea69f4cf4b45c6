//! Reads the fields of a JSON object one by one, and refuses unknown ones.
//!
//! Invariant: a field is honoured, harmless or refused by name; none is ignored silently: where an API tolerates
//! unknown fields, they are counted and logged. A null counts as absent.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// How a field is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// The field has the effect in the note.
    Honoured,
    /// The field is accepted without effect, for the reason in the note.
    Harmless,
    /// The field is a 400, for the reason in the note.
    Refused,
}

/// One field of an API. The reader, its errors and docs/api.md are made from these.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The field's name.
    pub name: &'static str,
    /// How the field is handled.
    pub handling: Handling,
    /// The field's effect, or why there is none.
    pub note: &'static str,
}

/// A row of a table.
pub const fn honoured(name: &'static str, note: &'static str) -> Field {
    Field { name, handling: Handling::Honoured, note }
}

/// A row of a table.
pub const fn harmless(name: &'static str, note: &'static str) -> Field {
    Field { name, handling: Handling::Harmless, note }
}

/// A row of a table.
pub const fn refused(name: &'static str, note: &'static str) -> Field {
    Field { name, handling: Handling::Refused, note }
}

/// The honoured fields of an object, to be taken one by one.
#[derive(Debug)]
pub struct Fields {
    object: Map<String, Value>,
    /// The object's path with a trailing dot; empty for the body itself.
    prefix: String,
}

impl Fields {
    /// Checks every key against the tables; an unknown one is an error. `path` is empty for the body.
    pub fn open(value: Value, path: &str, tables: &[&[Field]]) -> Result<Self, ApiError> {
        Self::read(value, path, tables, |at| {
            Err(ApiError::unknown_field(at, format!("unknown field `{at}`")))
        })
    }

    /// Checks keys against the tables, but an unknown key is counted and left out.
    pub fn tolerant(value: Value, path: &str, tables: &[&[Field]]) -> Result<Self, ApiError> {
        Self::read(value, path, tables, |at| {
            count_unknown(at);
            Ok(())
        })
    }

    fn read(
        value: Value,
        path: &str,
        tables: &[&[Field]],
        unknown: impl Fn(&str) -> Result<(), ApiError>,
    ) -> Result<Self, ApiError> {
        let Value::Object(object) = value else {
            return Err(type_error(if path.is_empty() { "the body" } else { path }, "an object", &value));
        };
        let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
        let mut kept = Map::new();
        for (name, value) in object {
            if value.is_null() {
                continue;
            }
            let field = tables.iter().copied().flatten().find(|field| field.name == name);
            let at = format!("{prefix}{name}");
            match field.map(|field| (field.handling, field.note)) {
                Some((Handling::Honoured, _)) => _ = kept.insert(name, value),
                Some((Handling::Harmless, _)) => {}
                Some((Handling::Refused, why)) => {
                    return Err(ApiError::unsupported(&at, format!("`{at}` is not supported: {why}")));
                }
                None => unknown(&at)?,
            }
        }
        Ok(Self { object: kept, prefix })
    }

    /// The field's path in the body, for errors.
    pub fn at(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Whether a field is there and was not taken.
    pub fn has(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// A value of any type.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.object.remove(name)
    }

    /// A string.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.take(name, "a string", |value| match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        })
    }

    /// True or false.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.take(name, "true or false", |value| value.as_bool().ok_or(value))
    }

    /// Any finite number.
    pub fn number(&mut self, name: &str) -> Result<Option<f64>, ApiError> {
        self.take(name, "a number", |value| value.as_f64().ok_or(value))
    }

    /// A whole number of 64 bits, with or without a sign, as its bits.
    pub fn integer(&mut self, name: &str) -> Result<Option<i128>, ApiError> {
        self.take(name, "an integer of 64 bits", |value| integer(&value).ok_or(value))
    }

    /// A whole number within limits.
    pub fn count(&mut self, name: &str, limits: (usize, usize)) -> Result<Option<usize>, ApiError> {
        let at = self.at(name);
        let count = self.take(name, "an integer", |value| {
            if integer(&value).is_some() || whole_beyond_64_bits(&value) { Ok(value) } else { Err(value) }
        })?;
        count.map(|value| count_within(&at, &value, limits)).transpose()
    }

    /// A list.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        self.take(name, "a list", |value| match value {
            Value::Array(list) => Ok(list),
            other => Err(other),
        })
    }

    /// An object with arbitrary keys.
    pub fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, ApiError> {
        self.take(name, "an object", |value| match value {
            Value::Object(object) => Ok(object),
            other => Err(other),
        })
    }

    /// An object with known fields.
    pub fn nested(&mut self, name: &str, table: &[Field]) -> Result<Option<Self>, ApiError> {
        let at = self.at(name);
        self.value(name).map(|value| Self::open(value, &at, &[table])).transpose()
    }

    /// A required field. Fails when it is absent.
    pub fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, ApiError> {
        let at = self.at(name);
        value.ok_or_else(|| ApiError::invalid(&at, format!("`{at}` is missing")))
    }

    /// Fails when any field is left, for fields that are honoured in other contexts only.
    pub fn refuse_rest(self, why: &str) -> Result<(), ApiError> {
        match self.object.keys().next() {
            None => Ok(()),
            Some(name) => {
                let at = self.at(name);
                Err(ApiError::invalid(&at, format!("`{at}` {why}")))
            }
        }
    }

    /// Checks that all fields were taken.
    pub fn finish(self) {
        debug_assert!(self.object.is_empty(), "all honoured fields are read: {:?}", self.object);
    }

    fn take<T>(
        &mut self,
        name: &str,
        kind: &str,
        read: impl FnOnce(Value) -> Result<T, Value>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.object.remove(name) else { return Ok(None) };
        read(value).map(Some).map_err(|value| type_error(&self.at(name), kind, &value))
    }
}

/// Counts what a request has and this server does not know.
pub fn count_unknown(at: &str) {
    metrics::counter!("omnibus_unknown_fields_total").increment(1);
    tracing::debug!(field = at, "an unknown part of a request was left out");
}

/// An error that names the expected and the actual type.
pub fn type_error(at: &str, kind: &str, got: &Value) -> ApiError {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ApiError::invalid(at, format!("`{at}` must be {kind}, not {got}"))
}

/// A list of token ids.
pub fn token_ids(at: &str, list: &[Value]) -> Result<Vec<u32>, ApiError> {
    let read = |(index, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| token_id_error(&format!("{at}[{index}]"), value))
    };
    list.iter().enumerate().map(read).collect()
}

fn token_id_error(at: &str, value: &Value) -> ApiError {
    if value.is_number() {
        ApiError::invalid(at, format!("`{at}` must be a token id, not {value}"))
    } else {
        type_error(at, "a token id", value)
    }
}

fn integer(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

/// JSON integers past 64 bits arrive as floats.
fn whole_beyond_64_bits(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.abs() >= 2_f64.powi(63))
}

fn count_within(at: &str, value: &Value, (least, most): (usize, usize)) -> Result<usize, ApiError> {
    let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
    count.filter(|count| (least..=most).contains(count)).ok_or_else(|| {
        ApiError::invalid(at, format!("`{at}` must be between {least} and {most}, not {value}"))
    })
}
