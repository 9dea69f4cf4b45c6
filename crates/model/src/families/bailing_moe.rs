//! Ling and Ring (Bailing MoE), 1 and 2: one projection for queries, keys and values, experts routed by softmax or sigmoid.
//!
//! Source: mlx-lm `models/bailing_moe.py`.

use super::names::*;
use super::routed::*;
use crate::*;

/// Training, and what names other models' parts.
pub(super) const WITHOUT_EFFECT: &[&str] = &[
    "embedding_dropout",
    "ep_size",
    "expert_capacity_factor",
    "moe_router_enable_routed_scaling",
    "moe_router_topk_scaling_factor",
    "mtp_loss_scaling_factor",
    "multi_gate",
    "norm_softmax",
    "num_nextn_predict_layers",
    "output_dropout",
    "router_dtype",
    "router_type",
    "topk_method",
    "use_rmsnorm",
    "head_dim",
    "use_mrope",
    "using_split_qkv_in_self_attention",
    "moe_router_enable_shared_expert",
];

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.pass_by(WITHOUT_EFFECT);
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
    let (experts, width): (usize, usize) = (cfg.req("num_experts")?, cfg.req("moe_intermediate_size")?);
    let shared_width = cfg.or("moe_shared_expert_intermediate_size", width)?;
    let shared = shared_width * cfg.or::<usize>("num_shared_experts", 0)?;
    let top_k = cfg.req("num_experts_per_tok")?;
    let kinds = [("softmax", RouteScores::Softmax), ("sigmoid", RouteScores::Sigmoid)];
    Ok(Moe {
        latent: None,
        experts,
        top_k,
        expert: dense.with_width(width).into(),
        router: Router {
            scores: cfg.choice_opt("score_function", &kinds)?.unwrap_or(RouteScores::Softmax),
            correction_bias: cfg.or("moe_router_enable_expert_bias", false)?,
            groups: groups(cfg, experts)?,
            renormalize: top_k > 1 && cfg.or("norm_topk_prob", false)?,
            scale: cfg.or("routed_scaling_factor", 1.0)?,
            ..Router::SOFTMAX
        },
        shared: (shared > 0).then(|| shared_experts(shared)),
    })
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
