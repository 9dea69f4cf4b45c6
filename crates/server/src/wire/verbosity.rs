//! `verbosity`: how long an answer should be.

use super::fields::Fields;
use crate::error::ApiError;

/// How long an answer should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// As short as possible.
    Low,
    /// As the model likes.
    #[default]
    Medium,
    /// Long.
    High,
}

impl Verbosity {
    /// Its name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Takes `verbosity`.
pub fn read(fields: &mut Fields) -> Result<Verbosity, ApiError> {
    match fields.text("verbosity")?.as_deref() {
        Some("low") => Ok(Verbosity::Low),
        Some("medium") | None => Ok(Verbosity::Medium),
        Some("high") => Ok(Verbosity::High),
        Some(other) => {
            let at = fields.at("verbosity");
            Err(ApiError::invalid(&at, format!("`{at}` must be low, medium or high, not `{other}`")))
        }
    }
}
