//! What BGE-M3 has beside its vectors: a weight of each token, and a vector of each token.
//!
//! Source: arXiv 2402.03216 §3.1; FlagEmbedding `BGEM3FlagModel`.

use std::path::Path;

use crate::VectorLength;
use crate::activation::Activation;
use crate::error::PoolerError;
use crate::step::{Dense, Step};
use crate::torch_file;

/// Both heads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LexicalHeads {
    /// To one number.
    weight: Dense,
    vector: Dense,
}

/// Files of torch beside the checkpoint.
const FILES: [&str; 2] = ["sparse_linear.pt", "colbert_linear.pt"];

impl LexicalHeads {
    /// Reads them from a model directory; `None` where it does not have both files.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, PoolerError> {
        let [weight, vector] = FILES;
        if !FILES.iter().all(|file| directory.join(file).is_file()) {
            return Ok(None);
        }
        Ok(Some(Self {
            weight: torch_file::dense(directory, weight, Activation::Relu)?,
            vector: torch_file::dense(directory, vector, Activation::Identity)?,
        }))
    }

    /// A weight of each row.
    pub(crate) fn weights(&self, rows: &[f32]) -> Vec<f32> {
        self.weight.apply(rows)
    }

    /// A vector of each row, one behind the other.
    pub(crate) fn vectors(&self, rows: (&[f32], usize), length: VectorLength) -> Vec<f32> {
        crate::by_row(&[Step::Dense(self.vector.clone()), Step::Normalize], length, rows).0
    }

    pub(crate) fn vector_width(&self) -> usize {
        Step::Dense(self.vector.clone()).outputs().unwrap_or_default()
    }

    /// Fails where they do not read rows of this width.
    pub(crate) fn check(&self, hidden: usize) -> Result<(), PoolerError> {
        for (file, head) in FILES.into_iter().zip([&self.weight, &self.vector]) {
            let head = Step::Dense(head.clone());
            if !head.fits(hidden) || (file == FILES[0] && head.outputs() != Some(1)) {
                let reason = format!("does not read states of {hidden} numbers");
                return Err(PoolerError::new(file, reason));
            }
        }
        Ok(())
    }
}
