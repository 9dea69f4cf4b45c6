//! An MLP in the place of a mixer: positions exchange nothing (Nemotron-NAS).

use mlx::Array;

use super::{MixerCache, MixerSpec};
use crate::blocks::{MixerBlock, MlpBlock};
use crate::manifest::Scope;
use crate::mlps::Mlp;
use crate::ops::LayerContext;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

/// An MLP in the place of a mixer.
#[derive(Debug, Clone, PartialEq)]
pub struct PerPosition(pub Mlp);

impl Rules for PerPosition {
    fn check_rules(&self, broken: &mut Broken) {
        self.0.spec().check_rules(broken);
    }
}

impl Tensors for PerPosition {
    fn name_tensors(&self, at: &mut Scope) {
        self.0.spec().name_tensors(at);
    }
}

impl Footprint for PerPosition {
    fn row_elements(&self, hidden: usize) -> usize {
        self.0.spec().row_elements(hidden)
    }
}

impl MixerSpec for PerPosition {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        Vec::new()
    }
}

/// The MLP with its weights.
pub(super) struct PerPositionBlock(pub(super) Box<dyn MlpBlock>);

impl MixerBlock for PerPositionBlock {
    fn forward(&self, x: &Array, _layer: LayerContext) -> mlx::Result<Array> {
        self.0.forward(x)
    }
}
