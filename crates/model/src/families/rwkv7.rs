//! RWKV-7: time mixing and channel mixing, each with the row before it.
//!
//! Source: mlx-lm `models/rwkv7.py`; arXiv 2503.14456.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let (hidden, head_dim): (usize, usize) = (cfg.req("hidden_size")?, cfg.req("head_dim")?);
    let norm = Norm::Layer { eps: cfg.req("norm_eps")?, bias: true };
    let tied = cfg.or("tie_word_embeddings", false)?;
    let dims = Dims {
        hidden,
        layers: Dims::layers(cfg, "num_hidden_layers")?,
        heads: hidden / head_dim.max(1),
        kv_heads: hidden / head_dim.max(1),
        head_dim,
        vocab: cfg.req("vocab_size")?,
        context: 0,
        norm,
        head: if tied { Head::Tied } else { Head::Own },
    };
    let shift = TokenShift { width: hidden };
    let rank = |name: &str| cfg.req(&format!("{name}_low_rank_dim"));
    let time = TimeMix {
        shift,
        state: WkvState { heads: dims.heads, head_dim },
        ranks: [rank("decay")?, rank("a")?, rank("v")?, rank("gate")?],
        mixes_first_values: true,
    };
    let channel = ChannelMix { shift, width: cfg.req("intermediate_size")? };
    let layer = |index: usize| {
        let time = TimeMix { mixes_first_values: index > 0, ..time };
        let mixing = LayerSpec { mixer_name: "attn", ..LayerSpec::mixer_alone(time, norm, "attn_norm") };
        let mlp = LayerSpec { mixer_name: "ffn", ..LayerSpec::mixer_alone(channel, norm, "ffn_norm") };
        [mixing, mlp]
    };
    let blueprint = Blueprint::new(&dims, (0..dims.layers).flat_map(layer).collect());
    Ok(Blueprint {
        context: None,
        embed_norm: Some(norm),
        names: Names { embed: "embeddings", ..Names::LLAMA },
        rewrites: rewrites(&dims),
        ..blueprint.numbered(|index| index / 2)
    })
}

fn rewrites(dims: &Dims) -> Vec<WeightRewrite> {
    let shaped = |name: &str, shape: &[usize]| WeightRewrite::Reshape {
        tensors: format!("model.layers.*.attn.{name}").into(),
        shape: shape.to_vec(),
    };
    let shares = ["x_r", "x_w", "x_k", "x_v", "x_a", "x_g"].map(|name| shaped(name, &[dims.hidden]));
    let by_head = ["k_k", "k_a", "r_k", "g_norm.weight", "g_norm.bias"]
        .map(|name| shaped(name, &[dims.heads, dims.head_dim]));
    [modules([("model.layers.0.pre_norm", "model.embed_norm")]), shares.to_vec(), by_head.to_vec()].concat()
}
