//! PLaMo 3: norms on both sides, stored as what is added to a different number each; windows in most layers.
//!
//! Source: mlx-lm `models/plamo3.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let global = Attention {
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(&dims, rope(cfg, &dims)?)
    };
    let base = cfg.or("rope_local_theta", 10_000.0)?;
    // A position also sees the one `window_size` before it.
    let local = Attention {
        span: AttentionSpan::Window(cfg.req::<usize>("window_size")? + 1),
        position: Position::Rope(Rope::new(dims.head_dim, base)),
        ..global.clone()
    };
    let mlp = GatedMlp { act: Activation::Silu, ..GatedMlp::read(cfg)? };
    let norms = NormPlacement::Sandwich {
        mixer: ["pre_mixer_norm", "post_mixer_norm"],
        mlp: ["pre_mlp_norm", "post_mlp_norm"],
    };
    let layer = |attention: &Attention| LayerSpec {
        mixer_name: "mixer",
        ..LayerSpec::pre_norm(attention.clone(), mlp, dims.norm).with_norms(norms)
    };
    let rewrites = vec![
        prefix("model.layers.layers", "model.layers"),
        split_qkv("model.layers.*.mixer.qkv_proj", &global),
        split_gate_up("model.layers.*.mlp.gate_up_proj", mlp.width),
        added("model.layers.*.mixer.q_norm.weight", 1.0),
        added("model.layers.*.mixer.k_norm.weight", 1.0),
    ];
    let rewrites = [rewrites, norm_offsets()].concat();
    let layers = every(cfg.req("sliding_window_pattern")?, dims.layers, layer(&global), layer(&local));
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, layers) })
}

fn added(tensors: &str, amount: f32) -> WeightRewrite {
    WeightRewrite::Add { tensors: tensors.into(), amount, when: When::Always }
}

/// What is added to the stored norms around layers' parts, and to the last.
pub(super) fn norm_offsets() -> Vec<WeightRewrite> {
    vec![
        added("model.norm.weight", 1.0),
        added("model.layers.*.pre_mixer_norm.weight", 1.0),
        added("model.layers.*.post_mixer_norm.weight", 0.2),
        added("model.layers.*.pre_mlp_norm.weight", 1.0),
        added("model.layers.*.post_mlp_norm.weight", 0.2 / 5f32.sqrt()),
    ]
}
