//! StableLM 2 and 3B: layer norms, partial rotation, perhaps a norm on each head and parts beside each other.
//!
//! Source: mlx-lm `models/stablelm.py`.

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let eps = cfg.req("layer_norm_eps")?;
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? }.with_layer_norm(eps, true);
    let norm = Norm::Layer { eps, bias: false };
    let normed = cfg.or("qk_layernorm", false)?;
    let qk_norm = QkNorm { norm, over: NormOver::EachHead, at: NormAt::BeforeRotation };
    let attention = Attention {
        qk_norm: normed.then_some(qk_norm),
        qkv_bias: cfg.or("use_qkv_bias", false)?,
        ..Attention::new(&dims, partial_rope(cfg, &dims, 0.25)?)
    };
    let mlp = GatedMlp { act: Activation::Silu, ..GatedMlp::read(cfg)? };
    let parallel = cfg.or("use_parallel_residual", false)?;
    let norms = if parallel { NormPlacement::PARALLEL } else { NormPlacement::LLAMA };
    let stacked =
        [("q", dims.heads), ("k", dims.kv_heads)].map(|(name, heads)| WeightRewrite::StackExperts {
            from: format!("model.layers.*.self_attn.{name}_layernorm.norms.#.weight").into(),
            to: format!("model.layers.*.self_attn.{name}_norm.weight").into(),
            experts: heads,
        });
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(norms);
    Ok(Blueprint { rewrites: stacked.into(), ..Blueprint::uniform(&dims, layer) })
}
