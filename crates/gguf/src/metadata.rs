//! Metadata by key, with errors that name the key.

use std::collections::BTreeMap;

use crate::error::Problem;
use crate::value::{List, Value};

/// A file's metadata.
#[derive(Debug, Clone, Copy)]
pub struct Metadata<'a>(pub &'a BTreeMap<String, Value>);

impl<'a> Metadata<'a> {
    fn read<T>(
        self,
        key: &str,
        want: &str,
        as_type: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let wrong = || Problem::unsupported(format!("`{key}` is not {want}"));
        self.0.get(key).map(|value| as_type(value).ok_or_else(wrong)).transpose()
    }

    /// A text, if it is there.
    pub fn text(self, key: &str) -> Result<Option<&'a str>, Problem> {
        self.read(key, "a text", Value::as_str)
    }

    /// A number of things, if it is there.
    pub fn count(self, key: &str) -> Result<Option<usize>, Problem> {
        let small = |value: &Value| value.as_u64().filter(|count| *count <= u64::from(u32::MAX));
        Ok(self.read(key, "a whole number", small)?.map(|count| count as usize))
    }

    /// A number of things for each layer, or one for all, if it is there.
    pub fn counts(self, key: &str) -> Result<Option<Vec<usize>>, Problem> {
        let small = |number: i64| u32::try_from(number).ok().map(|number| number as usize);
        self.read(key, "whole numbers", |value| match value {
            Value::List(List::Integers(numbers)) => numbers.iter().map(|number| small(*number)).collect(),
            one => one.as_i64().and_then(small).map(|number| vec![number]),
        })
    }

    /// A number, if it is there.
    pub fn number(self, key: &str) -> Result<Option<f64>, Problem> {
        self.read(key, "a number", Value::as_f64)
    }

    /// A truth value, if it is there.
    pub fn truth(self, key: &str) -> Result<Option<bool>, Problem> {
        self.read(key, "a truth value", Value::as_bool)
    }

    /// A list of texts, if it is there.
    pub fn texts(self, key: &str) -> Result<Option<&'a [String]>, Problem> {
        self.read(key, "a list of texts", |value| match value {
            Value::List(List::Texts(texts)) => Some(texts.as_slice()),
            _ => None,
        })
    }

    /// A list of floats, if it is there.
    pub fn floats(self, key: &str) -> Result<Option<&'a [f32]>, Problem> {
        self.read(key, "a list of numbers", |value| match value {
            Value::List(List::Floats(numbers)) => Some(numbers.as_slice()),
            _ => None,
        })
    }

    /// A list of whole numbers, if it is there.
    pub fn integers(self, key: &str) -> Result<Option<&'a [i64]>, Problem> {
        self.read(key, "a list of whole numbers", |value| match value {
            Value::List(List::Integers(numbers)) => Some(numbers.as_slice()),
            _ => None,
        })
    }
}

/// What must be there.
pub fn required<T>(key: &str, value: Option<T>) -> Result<T, Problem> {
    value.ok_or_else(|| Problem::unsupported(format!("`{key}` is missing")))
}
