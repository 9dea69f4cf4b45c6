//! RWKV-7's channel mixing: `value(relu(key(x + (before − x) · shift))²)`.

use mlx::Array;

use crate::Activation;
use crate::blocks::{Linear, MixerBlock};
use crate::manifest::{Scope, TensorRole};
use crate::mixers::token_shift::TokenShift;
use crate::mixers::{MixerCache, MixerSpec};
use crate::ops::{LayerContext, Ops};
use crate::params::Param;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// Channel mixing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelMix {
    /// The row before.
    pub shift: TokenShift,
    /// Hidden width.
    pub width: usize,
}

impl Rules for ChannelMix {
    fn check_rules(&self, broken: &mut Broken) {
        broken.size(&[("intermediate_size", self.width)]);
    }
}

impl Tensors for ChannelMix {
    fn name_tensors(&self, at: &mut Scope) {
        at.tensor("x_k", &[at.hidden], TensorRole::Replicated);
        at.column("key", at.hidden, self.width, false);
        at.row("value", self.width, at.hidden, false);
    }
}

impl Footprint for ChannelMix {
    fn row_elements(&self, hidden: usize) -> usize {
        2 * self.width + 3 * hidden
    }
}

impl MixerSpec for ChannelMix {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        vec![&self.shift]
    }
}

/// Channel mixing with its weights.
pub(in crate::mixers) struct ChannelMixBlock {
    ops: Ops,
    /// `[1, hidden]`
    shift: Param,
    key: Linear,
    value: Linear,
}

impl ChannelMixBlock {
    pub(in crate::mixers) fn load(store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self {
            ops: store.ops(),
            shift: store.vector(&format!("{path}.x_k"))?.map(|shift| shift.expand_dims(&[0]))?,
            key: store.linear(&format!("{path}.key"))?,
            value: store.linear(&format!("{path}.value"))?,
        })
    }
}

impl MixerBlock for ChannelMixBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let mixes = self.ops.token_shift(x, &self.shift, layer)?;
        let shifted = mixes.first().ok_or_else(|| mlx::Error::new("a mix with the row before"))?;
        self.value.forward(&self.ops.act(&self.key.forward(shifted)?, Activation::Relu2)?)
    }
}
