//! Speculative decoding, as users set it and see it.

use std::path::{Path, PathBuf};

use omnibus_model::Source;
use serde::{Deserialize, Serialize};

use crate::error::StartError;

/// Where draft tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum DraftSource {
    /// Where there is a draft model or head, that or what followed the same tokens before, whichever makes tokens faster. Else
    /// the latter. On a CPU the MTP head of a checkpoint is used.
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
    /// What decides whether draft tokens are accepted.
    pub outcome: DraftOutcome,
}

/// What decides whether draft tokens are accepted. All but the first are for benchmarks: of random weights, no draft would be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum DraftOutcome {
    /// The tokens that are sampled.
    #[default]
    Sampled,
    /// Chance, vLLM's synthetic acceptance: of the draft tokens at each position so many percent are accepted where those before
    /// them were. The last counts for later positions, too.
    Synthetic(Vec<u8>),
    /// The request's `prediction`, which counts as what is sampled.
    Recorded,
}

impl SpeculationSettings {
    /// The directory of what drafts, if it is loaded beside the target model.
    pub fn checkpoint(&self) -> Option<&Path> {
        match self.source {
            DraftSource::Off | DraftSource::Ngram | DraftSource::Mtp => None,
            DraftSource::Auto | DraftSource::Model | DraftSource::Eagle3 | DraftSource::Dflash => {
                self.draft_model.as_deref()
            }
        }
    }

    /// Bytes of the files of what drafts, beside the other weights of the target. A head among those counts as theirs.
    pub(crate) fn weight_bytes(&self, target: &Source) -> Result<u64, StartError> {
        let bytes = match (self.source, self.checkpoint()) {
            (_, Some(directory)) => Source::Directory(directory.to_owned()).weight_bytes(),
            (DraftSource::Mtp | DraftSource::Auto, None) => target.mtp_bytes(),
            (
                DraftSource::Off
                | DraftSource::Ngram
                | DraftSource::Model
                | DraftSource::Eagle3
                | DraftSource::Dflash,
                None,
            ) => Ok(0),
        };
        bytes.map_err(StartError::new)
    }
}

impl Default for SpeculationSettings {
    fn default() -> Self {
        Self {
            source: DraftSource::default(),
            num_draft_tokens: 16,
            draft_model: None,
            outcome: DraftOutcome::Sampled,
        }
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
