//! MiniCPM 3 and Youtu-LLM: latent attention in dense models.
//!
//! Source: mlx-lm `models/minicpm3.py`, `models/youtu_llm.py`.

use super::latent::*;
use super::minicpm;
use crate::*;

pub(super) fn read_minicpm3(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = minicpm3_attention(cfg, &dims)?;
    let layer = LayerSpec {
        residual: minicpm::residual(cfg, &dims)?,
        ..LayerSpec::pre_norm(attention.clone(), GatedMlp::read(cfg)?, dims.norm)
    };
    let base: usize = cfg.req("dim_model_base")?;
    let logit_scale = if dims.head == Head::Own { base as f32 / dims.hidden as f32 } else { 1.0 };
    Ok(Blueprint {
        embed_scale: cfg.req("scale_emb")?,
        logit_scale,
        rewrites: vec![split_latent(&attention)],
        ..Blueprint::uniform(&dims, layer)
    })
}

/// Halves rotate together here; values are as wide as the stream divided by the heads.
fn minicpm3_attention(cfg: &Config, dims: &Dims) -> Result<LatentAttention, ConfigError> {
    let (nope_dim, rope_dim) = (cfg.req("qk_nope_head_dim")?, cfg.req("qk_rope_head_dim")?);
    Ok(LatentAttention {
        heads: dims.heads,
        nope_dim,
        rope_dim,
        v_head_dim: dims.hidden / dims.heads,
        latent_dim: cfg.req("kv_lora_rank")?,
        query_dim: Some(cfg.req("q_lora_rank")?),
        scale: ((nope_dim + rope_dim) as f32).powf(-0.5),
        position: Position::Rope(Rope::read(cfg, rope_dim)?),
        norm_eps: 1e-5,
        latent_scales: [1.0; 2],
        bias: cfg.or("attention_bias", false)?,
        temperature: None,
        out_gate: None,
        reads: KeyReads::All,
    })
}

pub(super) fn read_youtu(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = latent_attention(cfg, &dims, dims.norm.eps())?;
    let mlp = GatedMlp::read(cfg)?.with_bias(cfg.or("mlp_bias", false)?);
    let layer = LayerSpec::pre_norm(attention.clone(), mlp, dims.norm);
    Ok(Blueprint { rewrites: vec![split_latent(&attention)], ..Blueprint::uniform(&dims, layer) })
}
