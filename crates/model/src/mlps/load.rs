//! From an MLP's spec to the MLP with its weights.

use super::Mlp;
use super::gated::GatedBlock;
use super::moe::MoeBlock;
use crate::LoadError;
use crate::blocks::MlpBlock;
use crate::weights::Store;

impl Mlp {
    /// Takes its tensors, below `path`.
    pub(crate) fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MlpBlock>, LoadError> {
        Ok(match self {
            Self::Gated(spec) => Box::new(GatedBlock::load(spec, store, path)?),
            Self::Moe(spec) => Box::new(MoeBlock::load(spec, store, path)?),
        })
    }
}
