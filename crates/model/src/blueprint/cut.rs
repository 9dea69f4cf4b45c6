//! The network that one rank of several computes: heads and widths divided by the ranks, the stream whole.
//!
//! Invariant: sizes only. Which tensors a rank reads follows from the shapes of this blueprint's manifest beside the whole one's.

use super::Blueprint;
use crate::Activation;
use crate::mixers::{Attention, LatentAttention, Mixer, NormOver, OutNorm, Parallel};
use crate::mlps::{DenseAndRouted, Expert, GatedMlp, Mlp, Moe, PlainMlp};
use crate::shard::Part;

/// Why a network cannot be divided, in one line.
type Refusal = String;

impl Blueprint {
    /// What a rank computes: attention by heads, MLPs and experts by their widths. Ranks share a KV head where there are more
    /// ranks than KV heads. The error names what does not divide.
    pub(crate) fn cut(&self, part: Part) -> Result<Self, Refusal> {
        if !self.rotated.is_empty() {
            return Err("rotated weights are not divided among ranks yet".to_owned());
        }
        let mut cut = self.clone();
        for layer in &mut cut.layers {
            layer.mixer.cut(part).map_err(|why| format!("layer {}: {why}", layer.number))?;
            let shortcut = layer.shortcut.as_mut().map(|(_, mlp)| mlp);
            for mlp in layer.mlp.as_mut().into_iter().chain(shortcut) {
                mlp.cut(part).map_err(|why| format!("layer {}: {why}", layer.number))?;
            }
        }
        Ok(cut)
    }
}

impl Mixer {
    fn cut(&mut self, part: Part) -> Result<(), Refusal> {
        match self {
            Self::Attention(spec) => spec.cut(part),
            Self::Latent(spec) => spec.cut(part),
            Self::Parallel(Parallel(parts)) => parts.iter_mut().try_for_each(|(_, mixer)| mixer.cut(part)),
            Self::PerPosition(spec) => spec.0.cut(part),
            Self::Absent(_) => Ok(()),
            Self::Mamba1(_)
            | Self::Mamba2(_)
            | Self::SelectiveMamba2(_)
            | Self::GatedDelta(_)
            | Self::DeltaAttention(_)
            | Self::Lightning(_)
            | Self::RgLru(_)
            | Self::ShortConv(_)
            | Self::ConvGate(_)
            | Self::ConvAttention(_)
            | Self::LoopAttention(_)
            | Self::IndexedAttention(_)
            | Self::NgramEmbedding(_)
            | Self::TimeMix(_)
            | Self::ChannelMix(_)
            | Self::CrossAttention(_)
            | Self::Compressed(_) => {
                Err(format!("{} is not divided among ranks yet", self.blocks().join(", ")))
            }
        }
    }
}

impl Attention {
    fn cut(&mut self, part: Part) -> Result<(), Refusal> {
        let all_heads = self.qk_norm.is_some_and(|norm| norm.over == NormOver::AllHeads);
        let undivided = [
            (all_heads, "a norm of queries or keys over all heads"),
            (matches!(self.out_norm, Some(OutNorm::AllHeads(_))), "a norm of the output over all heads"),
            (self.block_sparse.is_some(), "attention to sparse blocks"),
            (self.distances.is_some(), "scores by distance"),
        ];
        if let Some((_, what)) = undivided.iter().find(|(has, _)| *has) {
            return Err(format!("{what} is not divided among ranks yet"));
        }
        self.heads = part.heads(self.heads, "attention heads")?;
        self.kv_heads = match self.kv_heads {
            shared if shared > 0 && part.ranks.is_multiple_of(shared) => 1,
            kv_heads => part.heads(kv_heads, "KV heads")?,
        };
        Ok(())
    }
}

impl LatentAttention {
    fn cut(&mut self, part: Part) -> Result<(), Refusal> {
        self.heads = part.heads(self.heads, "heads of latent attention")?;
        Ok(())
    }
}

impl Mlp {
    fn cut(&mut self, part: Part) -> Result<(), Refusal> {
        match self {
            Self::Gated(mlp) => mlp.cut(part),
            Self::Plain(mlp) => mlp.cut(part),
            Self::Moe(moe) => moe.cut(part),
            Self::DenseAndRouted(DenseAndRouted { dense, routed, .. }) => {
                dense.cut(part)?;
                routed.cut(part)
            }
            Self::Linear(_) => Ok(()),
            Self::Normed(_) => Err("a gated MLP with a norm is not divided among ranks yet".to_owned()),
        }
    }
}

impl GatedMlp {
    fn cut(&mut self, part: Part) -> Result<(), Refusal> {
        if matches!(self.act, Activation::SparseGelu { .. }) {
            return Err(
                "an activation that depends on a row's mean is not divided among ranks yet".to_owned()
            );
        }
        self.width = part.width(self.width, "columns of an MLP")?;
        Ok(())
    }
}

impl PlainMlp {
    fn cut(&mut self, part: Part) -> Result<(), Refusal> {
        self.width = part.width(self.width, "columns of an MLP")?;
        Ok(())
    }
}

impl Moe {
    /// Every expert's width: each rank computes a part of every expert.
    fn cut(&mut self, part: Part) -> Result<(), Refusal> {
        if self.latent.is_some_and(|latent| latent.norms.of_each.is_some()) {
            return Err("a norm of each expert's output is not divided among ranks yet".to_owned());
        }
        match &mut self.expert {
            Expert::Gated(mlp) => mlp.cut(part)?,
            Expert::Plain(mlp) => mlp.cut(part)?,
        }
        if let Some(shared) = &mut self.shared {
            shared.width = part.width(shared.width, "columns of a shared expert")?;
        }
        Ok(())
    }
}
