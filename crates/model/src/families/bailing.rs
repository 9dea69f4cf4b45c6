//! What Ling and Ring share: experts, names, lightning attention, and which layers attend.

use super::latent::*;
use super::names::*;
use super::routed::*;
use crate::*;

/// A head whose inputs' weights are normalised when it is loaded.
pub(super) fn head_norm(cfg: &Config) -> Result<Vec<WeightRewrite>, ConfigError> {
    let normed = cfg.or("norm_head", false)?;
    let norm = WeightRewrite::NormalizeInputs { tensors: "lm_head.weight".into() };
    Ok(if normed { vec![norm] } else { Vec::new() })
}

/// Its experts.
pub(super) fn moe(cfg: &Config, dense: GatedMlp) -> Result<Moe, ConfigError> {
    let router = Router {
        scores: cfg.choice_opt("score_function", ROUTE_SCORES)?.unwrap_or(RouteScores::Softmax),
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

pub(super) fn latent(cfg: &Config, dims: &Dims) -> Result<LatentAttention, ConfigError> {
    cfg.only("rope_interleave", true)?;
    latent_attention(cfg, dims, dims.norm.eps())
}

pub(super) fn lightning_attention(
    cfg: &Config,
    dims: &Dims,
    position: Position,
    qk_norm: bool,
) -> Result<Lightning, ConfigError> {
    Ok(Lightning {
        heads: dims.heads,
        head_dim: dims.head_dim,
        slopes: Vec::new(),
        position,
        qk_norm,
        qkv_bias: cfg.or("use_qkv_bias", false)?,
        out_bias: cfg.or("use_bias", false)?,
        norm_groups: cfg.req("group_norm_size")?,
        norm_eps: dims.norm.eps(),
    })
}

/// Which layers attend: the last of each group, and those behind the last whole group.
pub(super) fn attends(cfg: &Config, dims: &Dims) -> Result<Vec<bool>, ConfigError> {
    let group: usize = cfg.or("layer_group_size", 4)?;
    let whole = dims.layers / group.max(1) * group;
    Ok((0..dims.layers).map(|index| (index + 1).is_multiple_of(group) || index >= whole).collect())
}

pub(super) fn blueprint(
    cfg: &Config,
    dims: &Dims,
    moe: Moe,
    (attention, recurs): (Mixer, &dyn Fn(usize) -> Mixer),
    rewrites: Vec<WeightRewrite>,
) -> Result<Blueprint, ConfigError> {
    let dense = GatedMlp::read(cfg)?.with_bias(cfg.or("use_bias", false)?);
    let mlps = dense_then_routed(cfg, dims.layers, dense, Some(moe))?;
    let layer = |(index, (mlp, attends)): (usize, (Mlp, bool))| {
        let mixer = if attends { attention.clone() } else { recurs(index) };
        LayerSpec::pre_norm(mixer, mlp, dims.norm)
    };
    let layers = mlps.into_iter().zip(attends(cfg, dims)?).enumerate().map(layer).collect();
    Ok(Blueprint { rewrites, ..Blueprint::new(dims, layers) })
}
