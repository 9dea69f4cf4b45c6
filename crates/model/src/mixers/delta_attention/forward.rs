//! The forward pass of delta attention.

use mlx::{Array, Dtype, fast};

use super::{Decay, DeltaAttention, DeltaGate};
use crate::LoadError;
use crate::blocks::{Fused, Linear, MixerBlock, Projection};
use crate::ops::{CausalConv, DeltaRule, LayerContext};
use crate::weights::Store;

/// One layer of delta attention.
pub(crate) struct DeltaAttentionBlock {
    spec: DeltaAttention,
    qkv: Fused,
    conv: CausalConv,
    decay: Projection,
    write: Linear,
    gate: Projection,
    /// `[v_heads]` f32.
    a_log: Array,
    /// One for each decay, f32.
    dt_bias: Array,
    /// `[v_dim]` f32.
    norm: Array,
    out: Linear,
}

impl DeltaAttentionBlock {
    pub(crate) fn load(spec: &DeltaAttention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let parts = ["q", "k", "v"];
        let qkv = parts.map(|part| store.linear(&at(&format!("{part}_proj"))));
        let conv = parts.map(|part| store.conv(&at(&format!("{part}_conv1d"))));
        Ok(Self {
            spec: *spec,
            qkv: Fused::new(qkv.into_iter().collect::<Result<_, _>>()?)?,
            conv: CausalConv::join(conv.into_iter().collect::<Result<_, _>>()?)?,
            decay: Projection::load(store, path, "f", spec.decay_rank)?,
            write: store.linear(&at("b_proj"))?,
            gate: Projection::load(store, path, "g", spec.gate_rank)?,
            a_log: store.float(&at("A_log"))?,
            dt_bias: store.float(&at("dt_bias"))?,
            norm: store.float(&at("o_norm.weight"))?,
            out: store.linear(&at("o_proj"))?,
        })
    }

    /// Factors of each row, `[T, v_heads]` or `[T, v_heads · k_dim]`.
    fn decays(&self, x: &Array) -> mlx::Result<Array> {
        let spec = &self.spec;
        let steps = self.decay.forward(x)?.astype(Dtype::F32)? + &self.dt_bias;
        let rate = self.a_log.exp()?;
        let rate = match spec.decay {
            Decay::PerHead => rate,
            Decay::PerChannel | Decay::Bounded(_) => rate.repeat(spec.k_dim as i32, 0)?,
        };
        match spec.decay {
            Decay::PerHead | Decay::PerChannel => (steps.softplus()? * rate).negative()?.exp(),
            Decay::Bounded(bound) => ((steps * rate).sigmoid()? * bound).exp(),
        }
    }

    /// `y`: `[T, values]` f32 → normed head by head, times the gate.
    fn gated(&self, y: &Array, x: &Array) -> mlx::Result<Array> {
        let [rows, values] = y.dims()?;
        let by_head = y.reshape(&[rows, self.spec.v_heads as i32, self.spec.v_dim as i32])?;
        let normed = fast::rms_norm(&by_head, Some(&self.norm), self.spec.norm_eps)?;
        let gate = self.gate.forward(x)?.astype(Dtype::F32)?;
        let gate = match self.spec.gate {
            DeltaGate::Silu => gate.silu()?,
            DeltaGate::Sigmoid => gate.sigmoid()?,
        };
        (normed.reshape(&[rows, values])? * gate).astype(x.dtype()?)
    }
}

impl MixerBlock for DeltaAttentionBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let spec = &self.spec;
        let rule = DeltaRule {
            k_heads: spec.k_heads as i32,
            k_dim: spec.k_dim as i32,
            v_heads: spec.v_heads as i32,
            v_dim: spec.v_dim as i32,
        };
        let qkv = self.qkv.forward(x)?.astype(Dtype::F32)?;
        let decays = self.decays(x)?;
        let write = self.write.forward(x)?.astype(Dtype::F32)?.sigmoid()? * spec.write_scale;
        let y = layer.advance(|run, [last, memory]| {
            let (mixed, last) = self.conv.forward(&run.rows(&qkv)?, last)?;
            let (y, memory) = rule.scan(&mixed.silu()?, [&run.rows(&decays)?, &run.rows(&write)?], memory)?;
            Ok((y, [last, memory]))
        })?;
        self.out.forward(&self.gated(&y, x)?)
    }

    fn arrays(&self) -> Vec<&Array> {
        let own = [&self.a_log, &self.dt_bias, &self.norm];
        let projections = self.decay.arrays().into_iter().chain(self.gate.arrays());
        let linears = self.qkv.arrays().into_iter().chain(self.write.arrays()).chain(self.out.arrays());
        linears.chain(projections).chain(self.conv.arrays()).chain(own).collect()
    }
}
