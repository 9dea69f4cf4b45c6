//! `think`: whether and how much to reason.

use serde_json::Value;

use crate::error::ApiError;
use crate::wire::chat::{Reasoning, ShownReasoning};
use crate::wire::fields::Fields;

/// Whether and how much to reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Think {
    /// If the model can.
    #[default]
    IfAble,
    /// No.
    Off,
    /// Yes, with this effort.
    On {
        /// As chat templates know it.
        effort: Option<&'static str>,
    },
}

impl Think {
    /// Takes the field out of a body.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        match fields.value("think") {
            None => Ok(Self::IfAble),
            Some(Value::Bool(false)) => Ok(Self::Off),
            Some(Value::Bool(true)) => Ok(Self::On { effort: None }),
            Some(Value::String(text)) if text.is_empty() => Ok(Self::IfAble),
            Some(other) => {
                let effort = match other.as_str() {
                    Some("low") => "low",
                    Some("medium") => "medium",
                    // Chat templates know three efforts.
                    Some("high" | "max") => "high",
                    _ => {
                        let at = fields.at("think");
                        let message =
                            format!("`{at}` must be true, false, low, medium, high or max, not {other}");
                        return Err(ApiError::invalid(at, message));
                    }
                };
                Ok(Self::On { effort: Some(effort) })
            }
        }
    }

    /// What the chat template is given. `able`: whether the model reasons.
    pub fn reasoning(&self, able: ThinkingSupport) -> Reasoning {
        let enabled = match (self, able) {
            (Self::Off, _) => Some(false),
            (Self::On { .. }, _) | (Self::IfAble, ThinkingSupport::Yes) => Some(true),
            (Self::IfAble, ThinkingSupport::No) => None,
        };
        let effort = match self {
            Self::On { effort } => effort.map(str::to_owned),
            Self::Off | Self::IfAble => None,
        };
        Reasoning { effort, enabled }
    }

    /// Whether the answer has the reasoning: some models reason whatever they are given.
    pub fn shown(&self) -> ShownReasoning {
        match self {
            Self::Off => ShownReasoning::Omit,
            Self::IfAble | Self::On { .. } => ShownReasoning::Include,
        }
    }
}

/// Whether a model reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingSupport {
    /// It does.
    Yes,
    /// It does not.
    No,
}
