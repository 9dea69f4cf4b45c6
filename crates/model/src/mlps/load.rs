//! From an MLP's spec to the MLP with its weights.

use super::Mlp;
use super::dense_and_routed::DenseAndRoutedBlock;
use super::gated::GatedBlock;
use super::linear::LinearBlock;
use super::moe::MoeBlock;
use super::normed::NormedBlock;
use super::plain::PlainBlock;
use crate::blocks::MlpBlock;
use crate::weights::{LoadError, Store};

impl Mlp {
    /// Takes its tensors, below `path`.
    pub(crate) fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MlpBlock>, LoadError> {
        Ok(match self {
            Self::Gated(spec) => Box::new(GatedBlock::load(spec, store, path)?),
            Self::Plain(spec) => Box::new(PlainBlock::load(spec, store, path)?),
            Self::Linear(_) => Box::new(LinearBlock::load(store, path)?),
            Self::Normed(spec) => Box::new(NormedBlock::load(spec, store, path)?),
            Self::DenseAndRouted(spec) => Box::new(DenseAndRoutedBlock::load(spec, store, path)?),
            Self::Moe(spec) => Box::new(MoeBlock::load(spec, store, path)?),
        })
    }
}
