//! Configs of latent attention, as DeepSeek spells them, and the rewrites that its checkpoints need.

use crate::*;

/// Latent attention over DeepSeek's fields. Norms inside it have an epsilon of their own.
pub(super) fn latent_attention(
    cfg: &Config,
    dims: &Dims,
    norm_eps: f32,
) -> Result<LatentAttention, ConfigError> {
    cfg.pass_by(&["num_key_value_heads", "qk_head_dim", "head_dim", "rope_interleave"]);
    let (nope_dim, rope_dim) = (cfg.req("qk_nope_head_dim")?, cfg.req("qk_rope_head_dim")?);
    Ok(LatentAttention {
        heads: dims.heads,
        nope_dim,
        rope_dim,
        v_head_dim: cfg.req("v_head_dim")?,
        latent_dim: cfg.req("kv_lora_rank")?,
        query_dim: cfg.opt("q_lora_rank")?,
        scale: ((nope_dim + rope_dim) as f32).powf(-0.5) * magnitude(cfg)?,
        position: Position::Rope(Rope::read(cfg, rope_dim)?.interleaved()),
        norm_eps,
        latent_scales: [1.0; 2],
        bias: cfg.or("attention_bias", false)?,
        temperature: None,
        out_gate: None,
        reads: KeyReads::All,
    })
}

/// What scores are multiplied by where YaRN stretches the rotation. Source: mlx-lm `models/deepseek_v3.py`.
fn magnitude(cfg: &Config) -> Result<f32, ConfigError> {
    let Some(scaling) = cfg.section("rope_scaling")?.or(cfg.section("rope_parameters")?) else {
        return Ok(1.0);
    };
    let (all, factor): (f32, f32) = (scaling.or("mscale_all_dim", 0.0)?, scaling.or("factor", 1.0)?);
    if all == 0.0 || factor <= 1.0 {
        return Ok(1.0);
    }
    Ok((0.1 * all * factor.ln() + 1.0).powi(2))
}

/// Published checkpoints have one projection from latents to keys and values.
pub(super) fn split_latent(spec: &LatentAttention) -> WeightRewrite {
    split_latent_at("model.layers.*.self_attn", spec)
}

/// Splits the projection from latents to keys and values of attention at another place.
pub(crate) fn split_latent_at(at: &str, spec: &LatentAttention) -> WeightRewrite {
    WeightRewrite::SplitLatent {
        from: format!("{at}.kv_b_proj.weight").into(),
        heads: spec.heads,
        nope_dim: spec.nope_dim,
        v_head_dim: spec.v_head_dim,
    }
}
