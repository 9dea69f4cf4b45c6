//! RecurrentGemma (Griffin): real-gated linear recurrences, and local attention in every few layers.
//!
//! Source: mlx-lm `models/recurrent_gemma.py`; arXiv 2402.19427.

use super::names::*;
use super::parts::*;
use crate::*;

/// Of the rotation, whatever the config says.
const ROPE_BASE: f32 = 10_000.0;
/// Of the norms inside layers, whatever the config says.
const LAYER_EPS: f32 = 1e-5;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::OwnIfPresent, ..Dims::read(cfg)? };
    let dims = Dims { kv_heads: 1, head_dim: dims.hidden / dims.heads, ..dims };
    let attention = Attention {
        span: AttentionSpan::Window(cfg.req("attention_window_size")?),
        out_bias: true,
        ..Attention::new(&dims, Position::Rope(Rope::new(dims.head_dim / 2, ROPE_BASE)))
    };
    let recurrence = RgLru { width: dims.hidden, heads: dims.heads, conv_kernel_size: 4 };
    let width = cfg.req::<usize>("intermediate_size")? / 2;
    let mlp = GatedMlp { width, act: Activation::GeluTanh, bias: true };
    let kinds: Vec<String> = cfg.opt("block_types")?.or(cfg.opt("_block_types")?).unwrap_or_default();
    let norms = NormPlacement::Pre { mixer: "temporal_pre_norm", mlp: "channel_pre_norm" };
    let layer = |kind: &String| {
        let mixer: Mixer = match kind.as_str() {
            "recurrent" => recurrence.into(),
            _ => attention.clone().into(),
        };
        let norm = Norm::Rms { eps: LAYER_EPS };
        let layer = LayerSpec::pre_norm(mixer, mlp, norm).with_norms(norms);
        LayerSpec { mixer_name: "temporal_block", mlp_name: "mlp_block", ..layer }
    };
    let scaled = cfg.or("embeddings_scale_by_sqrt_dim", true)?;
    let rewrites = [
        vec![depthwise_to_mlx("**.conv_1d.weight")],
        modules([("model.final_norm", "model.norm")]),
        add_one_to_norms(When::Always).take(2).collect(),
    ];
    Ok(Blueprint {
        embed_scale: if scaled { (dims.hidden as f32).sqrt() } else { 1.0 },
        logit_softcap: cfg.opt::<f32>("logits_soft_cap")?.filter(|cap| *cap > 0.0),
        context: None,
        rewrites: rewrites.concat(),
        ..Blueprint::new(&dims, kinds.iter().cycle().take(dims.layers).map(layer).collect())
    })
}
