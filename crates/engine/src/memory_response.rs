//! What the engine does about memory pressure.
//!
//! Invariant: pure; no source of readings, no thread.

use serde::{Deserialize, Serialize};

/// How short memory is, as the system says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pressure {
    #[default]
    Normal,
    /// Programs should free what they can compute again.
    Warning,
    /// Programs wait for memory, or are about to be ended.
    Critical,
}

/// What the engine does about it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// Nothing.
    #[default]
    None,
    /// Freed buffers are given back to the system instead of kept.
    ShrinkCaches,
    /// New requests are refused, too, until what runs has freed memory.
    RefuseRequests,
}

impl Response {
    /// The response to a reading, `self` being that to the one before. Requests are refused where shrunk caches did not help.
    pub(crate) fn after(self, reading: Pressure) -> Self {
        match (reading, self) {
            (Pressure::Normal, _) => Self::None,
            (Pressure::Warning, _) | (Pressure::Critical, Self::None) => Self::ShrinkCaches,
            (Pressure::Critical, Self::ShrinkCaches | Self::RefuseRequests) => Self::RefuseRequests,
        }
    }

    /// For `/health`; empty without pressure.
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::None => "",
            Self::ShrinkCaches => "memory is short: caches are kept small",
            Self::RefuseRequests => "memory is short: caches are kept small, and new requests are refused",
        }
    }
}
