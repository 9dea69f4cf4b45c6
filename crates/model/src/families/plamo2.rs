//! PLaMo 2: Mamba layers with attention in every few, norms on both sides stored as what is added to a number.
//!
//! Source: mlx-lm `models/plamo2.py`.

use super::names::*;
use super::parts::*;
use super::plamo3::norm_offsets;
use crate::*;

/// Of the norms on queries and keys.
const HEAD_EPS: f32 = 1e-6;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let head_dim = cfg.or("hidden_size_per_head", 128)?;
    let dims = Dims { head_dim, ..Dims::read(cfg)? };
    let norm = Norm::Rms { eps: HEAD_EPS };
    let attention = Attention {
        qk_norm: Some(QkNorm { norm, over: NormOver::EachHead, at: NormAt::BeforeRotation }),
        ..Attention::new(&dims, Position::Rope(Rope::new(head_dim, 10_000.0)))
    };
    let mamba = SelectiveMamba2 {
        recurrence: Mamba2 {
            heads: cfg.or("mamba_num_heads", 64)?,
            head_dim,
            groups: 1,
            state_dim: cfg.or("mamba_d_state", 64)?,
            conv_kernel_size: cfg.or("mamba_d_conv", 4)?,
            step_limits: [0.001, 100.0],
            bias: false,
            conv_bias: false,
            norm: None,
            norm_groups: 1,
        },
        step_rank: (dims.hidden / 16).max(64),
        norm_eps: dims.norm.eps(),
    };
    let mlp = GatedMlp { act: Activation::Silu, ..GatedMlp::read(cfg)? };
    let norms = NormPlacement::Sandwich {
        mixer: ["pre_mixer_norm", "post_mixer_norm"],
        mlp: ["pre_mlp_norm", "post_mlp_norm"],
    };
    let step: usize = cfg.or("mamba_step", 2)?;
    let recurs = cfg.or("mamba_enabled", true)?;
    let layer = |index: usize| {
        let attends = match dims.layers <= step / 2 {
            true => index == dims.layers - 1,
            false => index % step.max(1) == step / 2,
        };
        let mixer: Mixer = if attends || !recurs { attention.clone().into() } else { mamba.clone().into() };
        let layer = LayerSpec::pre_norm(mixer, mlp, dims.norm).with_norms(norms);
        LayerSpec { mixer_name: "mixer", ..layer }
    };
    let (inner, heads) = (mamba.recurrence.inner(), mamba.recurrence.heads);
    let rewrites = [
        vec![prefix("model.layers.layers", "model.layers"), conv_to_mlx()],
        vec![split_qkv("model.layers.*.mixer.qkv_proj", &attention)],
        vec![split_gate_up("model.layers.*.mlp.gate_up_proj", mlp.width)],
        vec![WeightRewrite::TakeRows {
            tensors: "model.layers.*.mixer.in_proj.*".into(),
            rows: apart(heads, &[inner / heads.max(1); 2]),
        }],
        tensors_of_layers([
            ("mixer.B_norm_weight", "mixer.B_norm.weight"),
            ("mixer.C_norm_weight", "mixer.C_norm.weight"),
            ("mixer.dt_norm_weight", "mixer.dt_norm.weight"),
            ("mixer.q_weight", "mixer.q_norm.weight"),
            ("mixer.k_weight", "mixer.k_norm.weight"),
        ]),
        norm_offsets(),
    ];
    let layers = (0..dims.layers).map(layer).collect();
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers) })
}
