//! A setting as the page of the server shows it.

use serde::Serialize;

/// A setting with its value, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownSetting {
    /// Its name in `omnibus.toml`.
    pub name: &'static str,
    /// Empty where it is unset.
    pub value: String,
    /// Where the value comes from.
    pub source: String,
}
