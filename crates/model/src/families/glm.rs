//! GLM-4 (`glm`, whose whole heads rotate) and GLM-4-0414 (`glm4`, with norms on both sides of each part).
//!
//! Source: mlx-lm `models/glm.py`, `models/glm4.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let position = interleaved_rope(cfg, &dims)?;
    blueprint(cfg, &dims, position, NormPlacement::LLAMA)
}

pub(super) fn read_glm4(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let rope = Rope::read_partial(cfg, dims.head_dim, 0.5)?;
    let pairs = if cfg.or("rope_traditional", true)? { RotaryPairing::Interleaved } else { rope.pairs };
    let norms = NormPlacement::Sandwich {
        mixer: ["input_layernorm", "post_self_attn_layernorm"],
        mlp: ["post_attention_layernorm", "post_mlp_layernorm"],
    };
    blueprint(cfg, &dims, Position::Rope(Rope { pairs, ..rope }), norms)
}

fn blueprint(
    cfg: &Config,
    dims: &Dims,
    position: Position,
    norms: NormPlacement,
) -> Result<Blueprint, ConfigError> {
    let mlp = GatedMlp::read(cfg)?;
    let attention =
        Attention { qkv_bias: cfg.or("attention_bias", false)?, ..Attention::new(dims, position) };
    let rewrites =
        vec![drop("**.rotary_emb.inv_freq"), split_gate_up("model.layers.*.mlp.gate_up_proj", mlp.width)];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(norms);
    Ok(Blueprint { rewrites, ..Blueprint::uniform(dims, layer) })
}
