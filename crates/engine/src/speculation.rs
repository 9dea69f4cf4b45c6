//! Speculative decoding, as users set it and see it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where draft tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum DraftSource {
    /// Where there is a draft model or head, that or what followed the same tokens before, whichever makes tokens faster. Else
    /// the latter on a CPU, and none on a GPU, where that is not measured yet. On a CPU the MTP head of a checkpoint is used.
    #[default]
    Auto,
    /// None.
    Off,
    /// What followed the same tokens before, in the request and in recent answers.
    Ngram,
    /// A draft model.
    Model,
    /// The head of the model's own checkpoint that predicts further tokens.
    Mtp,
    /// An EAGLE-3 head, in the place of a draft model.
    Eagle3,
    /// A DFlash head, in the place of a draft model.
    Dflash,
}

/// Settings of speculative decoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeculationSettings {
    /// Where draft tokens come from.
    pub source: DraftSource,
    /// Most draft tokens of a sequence in a step.
    pub num_draft_tokens: usize,
    /// The directory of what drafts: a smaller model with the same vocabulary, or an EAGLE-3 head.
    pub draft_model: Option<PathBuf>,
}

impl Default for SpeculationSettings {
    fn default() -> Self {
        Self { source: DraftSource::default(), num_draft_tokens: 16, draft_model: None }
    }
}

/// Whether a request may have draft tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Speculation {
    /// Where the engine has any.
    #[default]
    Allowed,
    /// Never.
    Off,
}

/// What became of a request's draft tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DraftUsage {
    /// They were sampled, too.
    pub accepted: usize,
    /// Others were sampled.
    pub rejected: usize,
}

impl std::ops::AddAssign for DraftUsage {
    fn add_assign(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
    }
}
