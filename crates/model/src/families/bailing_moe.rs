//! Ling and Ring (Bailing MoE), 1 and 2: one projection for queries, keys and values, experts routed by softmax or sigmoid.
//!
//! Source: mlx-lm `models/bailing_moe.py`.

use super::names::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = attention(cfg, &dims)?;
    let dense = GatedMlp::read(cfg)?.with_bias(cfg.or("use_bias", false)?);
    let moe = moe(cfg, dense)?;
    let split = vec![split_qkv("model.layers.*.self_attn.query_key_value", &attention)];
    let rewrites = [head_norm(cfg)?, names(&dims, &moe), split].concat();
    let layer = |mlp: Mlp| LayerSpec::pre_norm(attention.clone(), mlp, dims.norm);
    let layers = dense_then_routed(cfg, dims.layers, dense, Some(moe))?.into_iter().map(layer).collect();
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, layers) })
}

/// A head whose inputs' weights are normalised when it is loaded.
pub(super) fn head_norm(cfg: &Config) -> Result<Vec<WeightRewrite>, ConfigError> {
    let normed = cfg.or("norm_head", false)?;
    let norm = WeightRewrite::NormalizeInputs { tensors: "lm_head.weight".into() };
    Ok(if normed { vec![norm] } else { Vec::new() })
}

/// Attention with a joined projection.
pub(super) fn attention(cfg: &Config, dims: &Dims) -> Result<Attention, ConfigError> {
    let normed = cfg.or("use_qk_norm", false)?;
    let rope = match cfg.opt("rotary_dim")? {
        Some(rotated) => Rope::read(cfg, rotated)?,
        None => Rope::read_partial(cfg, dims.head_dim, 1.0)?,
    };
    Ok(Attention {
        qk_norm: normed.then(|| QkNorm::per_head(dims.norm.eps())),
        qkv_bias: cfg.or("use_qkv_bias", false)?,
        out_bias: cfg.or("use_bias", false)?,
        ..Attention::new(dims, Position::Rope(rope))
    })
}

/// Its experts.
pub(super) fn moe(cfg: &Config, dense: GatedMlp) -> Result<Moe, ConfigError> {
    let kinds = [("softmax", RouteScores::Softmax), ("sigmoid", RouteScores::Sigmoid)];
    let router = Router {
        scores: cfg.choice_opt("score_function", &kinds)?.unwrap_or(RouteScores::Softmax),
        correction_bias: cfg.or("moe_router_enable_expert_bias", false)?,
        ..Router::SOFTMAX
    };
    counted_moe(cfg, dense, router)
}

/// From its names to ours, but for the joined projection.
pub(super) fn names(dims: &Dims, moe: &Moe) -> Vec<WeightRewrite> {
    let renamed = [
        modules([("model.word_embeddings", "model.embed_tokens")]),
        parts_of_layers([
            ("attention.query_key_value", "self_attn.query_key_value"),
            ("attention.dense", "self_attn.o_proj"),
            ("attention.query_layernorm", "self_attn.q_norm"),
            ("attention.key_layernorm", "self_attn.k_norm"),
            ("mlp.gate.gate_proj", "mlp.gate"),
        ]),
        tensors_of_layers([
            ("attention.**", "self_attn.**"),
            ("mlp.gate.expert_bias", "mlp.gate.e_score_correction_bias"),
        ]),
    ];
    [routed_rewrites(dims.layers, Some(moe)), renamed.concat()].concat()
}
