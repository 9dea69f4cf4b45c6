//! Fields of a form (`multipart/form-data`), one by one; unknown ones are refused.
//!
//! Invariant: as for JSON, a field is honoured, harmless or refused by name.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::str::FromStr;

use bytes::Bytes;
use futures::stream;
use multer::Multipart;

use super::fields::{Field, Handling};
use crate::error::ApiError;

/// Most fields of a form.
const FIELDS_MAX: usize = 64;

/// The fields of a form, to be taken one by one.
#[derive(Debug, Default)]
pub struct FormFields(BTreeMap<String, Vec<Bytes>>);

impl FormFields {
    /// Divides a body at its boundary, and checks every name against a table.
    pub async fn read(body: Bytes, boundary: String, table: &[Field]) -> Result<Self, ApiError> {
        let mut form = Multipart::new(stream::once(async { Ok::<_, Infallible>(body) }), boundary);
        let (mut fields, mut count) = (Self::default(), 0);
        while let Some(part) = form.next_field().await.map_err(malformed)? {
            count += 1;
            if count > FIELDS_MAX {
                return Err(ApiError::malformed(format!("a form has at most {FIELDS_MAX} fields")));
            }
            let name = part_name(&part)?;
            let value = part.bytes().await.map_err(malformed)?;
            fields.insert(name, value, table)?;
        }
        Ok(fields)
    }

    /// Adds a field, whose name is checked against a table.
    pub fn insert(&mut self, name: String, value: Bytes, table: &[Field]) -> Result<(), ApiError> {
        match table.iter().find(|field| field.name == name).map(|field| (field.handling, field.note)) {
            Some((Handling::Honoured, _)) => self.0.entry(name).or_default().push(value),
            Some((Handling::Harmless, _)) => {}
            Some((Handling::Refused, why)) => {
                return Err(ApiError::unsupported(&name, format!("`{name}` is not supported: {why}")));
            }
            None => return Err(ApiError::unknown_field(&name, format!("unknown field `{name}`"))),
        }
        Ok(())
    }

    /// The bytes of a field that is there once.
    pub fn file(&mut self, name: &str) -> Result<Option<Bytes>, ApiError> {
        let mut values = self.0.remove(name).unwrap_or_default().into_iter();
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(ApiError::invalid(name, format!("`{name}` is there more than once"))),
            (value, None) => Ok(value),
        }
    }

    /// The text of a field that is there once.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.file(name)?.map(|value| text(name, &value)).transpose()
    }

    /// The texts of a field.
    pub fn texts(&mut self, name: &str) -> Result<Vec<String>, ApiError> {
        self.0.remove(name).unwrap_or_default().iter().map(|value| text(name, value)).collect()
    }

    /// A number.
    pub fn number(&mut self, name: &str) -> Result<Option<f64>, ApiError> {
        let number = self.parsed(name, "a number")?;
        match number {
            Some(number) if !f64::is_finite(number) => Err(wrong(name, "a number")),
            number => Ok(number),
        }
    }

    /// A whole number.
    pub fn whole<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        self.parsed(name, "a whole number")
    }

    /// True or false.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        let text = self.text(name)?.map(|text| text.trim().to_ascii_lowercase());
        match text.as_deref() {
            None | Some("") => Ok(None),
            Some("true" | "1") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(_) => Err(wrong(name, "true or false")),
        }
    }

    fn parsed<T: FromStr>(&mut self, name: &str, what: &str) -> Result<Option<T>, ApiError> {
        let text = self.text(name)?.filter(|text| !text.trim().is_empty());
        text.map(|text| text.trim().parse().map_err(|_| wrong(name, what))).transpose()
    }
}

/// The name of a part.
pub fn part_name(part: &multer::Field<'_>) -> Result<String, ApiError> {
    let name = part.name().map(str::to_owned);
    name.ok_or_else(|| ApiError::malformed("a part of the form has no name").with_code("invalid_form"))
}

/// The error of a form that cannot be divided.
pub fn malformed(error: multer::Error) -> ApiError {
    ApiError::malformed(format!("the form is broken: {error}")).with_code("invalid_form")
}

fn text(name: &str, value: &[u8]) -> Result<String, ApiError> {
    String::from_utf8(value.to_vec()).map_err(|_| wrong(name, "a text in UTF-8"))
}

fn wrong(name: &str, what: &str) -> ApiError {
    ApiError::invalid(name, format!("`{name}` must be {what}"))
}
