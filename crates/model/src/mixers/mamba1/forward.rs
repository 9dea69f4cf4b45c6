//! The forward pass of a Mamba layer.

use mlx::{Array, Dtype};

use super::Mamba1;
use crate::blocks::{Linear, MixerBlock, NormBlock};
use crate::ops::{CausalConv, LayerContext, Mamba1Rows, Ops};
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// One Mamba layer.
pub(crate) struct Mamba1Block {
    spec: Mamba1,
    ops: Ops,
    /// Channels, then gates.
    input: Linear,
    conv: CausalConv,
    /// The steps' vector, what is written, and what reads.
    select: Linear,
    norms: Vec<NormBlock>,
    step: Linear,
    /// `[inner, state_dim]` f32: how fast states decay, below zero.
    rate: Param,
    /// `[inner]` f32.
    skip: Param,
    out: Linear,
}

impl Mamba1Block {
    pub(crate) fn load(spec: &Mamba1, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let norms = spec.step_norms.map(|norms| {
            let load = |(name, width)| store.norm(&at(name), norms.norm(), width);
            spec.normed().into_iter().map(load).collect::<Result<Vec<_>, _>>()
        });
        Ok(Self {
            norms: norms.transpose()?.unwrap_or_default(),
            spec: *spec,
            ops: store.ops(),
            input: store.linear(&at("in_proj"))?,
            conv: store.conv(&at("conv1d"))?,
            // Their rows are those of one run.
            select: store.linear(&at("x_proj"))?.without_adapters()?,
            step: store.linear(&at("dt_proj"))?.without_adapters()?,
            rate: store.float(&at("A_log"))?.map(|a_log| a_log.exp()?.negative())?,
            skip: store.float(&at("D"))?,
            out: store.linear(&at("out_proj"))?,
        })
    }

    /// What the recurrence takes of convolved channels, `[T, inner]`.
    fn rows(&self, channels: &Array) -> mlx::Result<[Array; 3]> {
        let (rank, state) = (self.spec.step_rank as i32, self.spec.state_dim as i32);
        let mut parts = self.select.forward(channels)?.split(&[rank, rank + state], -1)?;
        for (part, norm) in parts.iter_mut().zip(&self.norms) {
            *part = norm.forward(&part.contiguous()?)?;
        }
        let [step, write, read]: [Array; 3] =
            parts.try_into().map_err(|_| mlx::Error::new("steps, writes and reads"))?;
        Ok([self.step.forward(&step)?.astype(Dtype::F32)?.softplus()?, write, read])
    }
}

impl MixerBlock for Mamba1Block {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let parts = self.input.forward(x)?.split(&[self.spec.inner as i32], -1)?;
        let [channels, gate] = parts.as_slice() else { return Err(mlx::Error::new("channels and gates")) };
        let y = self.ops.mamba1(
            channels,
            &self.conv,
            &|mixed: &Array| self.rows(mixed),
            Mamba1Rows { rate: &self.rate, skip: &self.skip },
            layer,
        )?;
        self.out.forward(&(gate.silu()? * y))
    }
}
