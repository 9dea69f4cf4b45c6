//! What happens to the stream behind a layer's parts.

use mlx::Array;

use super::{Linear, NormBlock, ResidualStream};
use crate::Activation;
use crate::blueprint::Finish;
use crate::norm::Norm;
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// What the tokens of a pass give to every layer.
pub(crate) struct TokenInputs {
    /// What the first layer reads, `[T, hidden]`.
    pub(crate) embedded: Array,
    /// Of each layer, `[layers, T, width]`.
    pub(crate) per_layer: Option<Array>,
}

/// One step, with its weights.
pub(crate) enum FinishBlock {
    AddEmbeddings { gain: Param },
    PerLayerInput(Box<PerLayerBlock>),
    Scale { factor: Param },
}

/// The gate on a layer's own embeddings.
pub(crate) struct PerLayerBlock {
    ops: Ops,
    act: Activation,
    /// Of the embeddings.
    layer: i32,
    gate: Linear,
    projection: Linear,
    norm: NormBlock,
}

impl FinishBlock {
    /// `path`: of layer `number`.
    pub(crate) fn load(
        spec: &Finish,
        store: &mut Store,
        (path, number): (&str, usize),
        hidden: usize,
    ) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        Ok(match *spec {
            Finish::AddEmbeddings => Self::AddEmbeddings { gain: store.vector(&at("embed_skip.weight"))? },
            Finish::Scale => Self::Scale { factor: store.vector(&at("layer_scalar"))? },
            Finish::PerLayerInput { act, norm_eps, .. } => Self::PerLayerInput(Box::new(PerLayerBlock {
                ops: store.ops(),
                act,
                layer: number as i32,
                gate: store.linear(&at("per_layer_input_gate"))?,
                projection: store.linear(&at("per_layer_projection"))?,
                norm: store.norm(&at("post_per_layer_input_norm"), Norm::Rms { eps: norm_eps }, hidden)?,
            })),
        })
    }

    pub(crate) fn forward(&self, x: &mut ResidualStream, inputs: &TokenInputs) -> mlx::Result<()> {
        match self {
            Self::AddEmbeddings { gain } => x.add(&inputs.embedded * gain),
            Self::Scale { factor } => x.scale(factor),
            Self::PerLayerInput(block) => {
                let term = block.forward(x.value()?, inputs)?;
                x.add(term)
            }
        }
    }
}

impl PerLayerBlock {
    /// What joins the stream `x`, `[T, hidden]`.
    pub(crate) fn forward(&self, x: &Array, inputs: &TokenInputs) -> mlx::Result<Array> {
        let of_layers =
            inputs.per_layer.as_ref().ok_or_else(|| mlx::Error::new("embeddings of each layer"))?;
        let [_, rows, width] = of_layers.dims()?;
        let of_layer = of_layers.slice(&[self.layer, 0, 0], &[self.layer + 1, rows, width])?.squeeze(&[0])?;
        let gated = self.ops.gated_act_pair(&self.gate.forward(x)?, &of_layer, self.act)?;
        self.norm.forward(&self.projection.forward(&gated)?)
    }
}
