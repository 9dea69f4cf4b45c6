//! What a step computed, recorded while a client looks.
//!
//! Invariant: plain values, which cross from the engine's process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long the loop records steps after they were last requested.
pub(crate) const WATCH_TIME: Duration = Duration::from_secs(3);

/// What one step computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// From its launch until it was read.
    pub seconds: f64,
    /// Tokens of decoding sequences, one each.
    pub decodes: usize,
    /// Tokens of prompts.
    pub prefill: usize,
    /// Draft tokens.
    pub drafts: usize,
    /// Runs of encoders since the step before.
    pub encodes: u64,
    /// Most tokens that it could have.
    pub budget: usize,
}
