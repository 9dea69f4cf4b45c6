//! Ling and Ring 2.5 and 3, and the linear models before them: lightning attention or delta attention in most layers,
//! attention or latent attention in the last of each group.
//!
//! Source: mlx-lm `models/bailing_hybrid.py`, `models/bailing_moe_v3.py`, `models/bailing_moe_linear.py`.

use super::bailing_moe;
use super::latent::*;
use super::names::*;
use super::routed::*;
use crate::*;

/// Lightning attention and attention.
pub(super) fn read_linear(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = bailing_moe::attention(cfg, &dims)?;
    let norm = attention.qk_norm.is_some();
    let whole = Dims { head_dim: dims.hidden / dims.heads, kv_heads: dims.heads, ..dims };
    let lightning = lightning_attention(cfg, &whole, attention.position.clone(), norm)?;
    let moe = bailing_moe::moe(cfg, GatedMlp::read(cfg)?)?;
    let recurring = Attention::new(&whole, Position::None);
    let split = |(index, attends): (usize, bool)| {
        let sizes = if attends { &attention } else { &recurring };
        split_qkv(&format!("model.layers.{index}.self_attn.query_key_value"), sizes)
    };
    let split = attends(cfg, &dims)?.into_iter().enumerate().map(split).collect();
    let rewrites = [bailing_moe::head_norm(cfg)?, bailing_moe::names(&dims, &moe), split].concat();
    // The first two layers forget alike.
    let recurs = |index: usize| {
        let slopes = Lightning::slopes_at(dims.heads, index.saturating_sub(1), dims.layers);
        Lightning { slopes, ..lightning.clone() }.into()
    };
    blueprint(cfg, &dims, moe, (attention.clone().into(), &recurs), rewrites)
}

/// Lightning attention and latent attention, or delta attention and latent attention.
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let architectures: Vec<String> = cfg.or("architectures", Vec::new())?;
    if architectures.iter().any(|name| name == "BailingMoeV3ForCausalLM") {
        return read_v3(cfg);
    }
    let dims = Dims::read_untied(cfg)?;
    let latent = LatentAttention { bias: cfg.or("use_qkv_bias", false)?, ..latent(cfg, &dims)? };
    let rope = Rope::read_partial(cfg, dims.head_dim, 0.5)?;
    let lightning = lightning_attention(cfg, &dims, Position::Rope(rope), cfg.or("use_qk_norm", true)?)?;
    let moe = bailing_moe::moe(cfg, GatedMlp::read(cfg)?)?;
    let router = Router {
        scores: RouteScores::Sigmoid,
        correction_bias: cfg.or("moe_router_enable_expert_bias", true)?,
        renormalize: cfg.or("norm_topk_prob", true)?,
        ..moe.router
    };
    let moe = Moe { router, ..moe };
    let recurring = Attention::new(&Dims { kv_heads: dims.heads, ..dims }, Position::None);
    let recurs = |index: usize| {
        let slopes = Lightning::slopes_at(dims.heads, index, dims.layers);
        Lightning { slopes, ..lightning.clone() }.into()
    };
    let rewrites = [
        bailing_moe::names(&dims, &moe),
        vec![split_qkv("model.layers.*.self_attn.query_key_value", &recurring), split_latent(&latent)],
    ];
    blueprint(cfg, &dims, moe, (latent.into(), &recurs), rewrites.concat())
}

/// Delta attention, and latent attention with a gate on each head.
pub(super) fn read_v3(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("no_kda_lora", true)?;
    cfg.only("kda_safe_gate", true)?;
    let dims = Dims { head_dim: cfg.or("head_dim", 128)?, ..Dims::read_untied(cfg)? };
    let out_gate = Some(OutputGate::PerHead(HeadGate::Sigmoid));
    let latent = LatentAttention { out_gate, ..latent(cfg, &dims)? };
    let delta = DeltaAttention {
        k_heads: dims.heads,
        v_heads: dims.heads,
        k_dim: dims.head_dim,
        v_dim: dims.head_dim,
        conv_kernel_size: cfg.or("short_conv_kernel_size", 4)?,
        decay: Decay::Bounded(cfg.or("kda_lower_bound", -5.0)?),
        decay_rank: None,
        write_scale: 1.0,
        gate: DeltaGate::Sigmoid,
        gate_rank: None,
        norm_eps: dims.norm.eps(),
    };
    let moe = bailing_moe::moe(cfg, GatedMlp::read(cfg)?)?;
    let router = Router { renormalize: true, ..Router::SIGMOID_CORRECTED };
    let router = Router { groups: moe.router.groups, scale: moe.router.scale, ..router };
    let moe = Moe { router, ..moe };
    let gate = |(index, attends): (usize, bool)| {
        let at = |name: &str| format!("model.layers.{index}.self_attn.{name}");
        attends.then(|| prefix(&at("g_proj"), &at("gate_proj")))
    };
    let rewrites = [
        bailing_moe::names(&dims, &moe),
        attends(cfg, &dims)?.into_iter().enumerate().filter_map(gate).collect(),
        delta_convs(),
        vec![split_latent(&latent)],
    ];
    blueprint(cfg, &dims, moe, (latent.into(), &|_| delta.into()), rewrites.concat())
}

fn latent(cfg: &Config, dims: &Dims) -> Result<LatentAttention, ConfigError> {
    cfg.only("rope_interleave", true)?;
    latent_attention(cfg, dims, dims.norm.eps())
}

fn lightning_attention(
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
fn attends(cfg: &Config, dims: &Dims) -> Result<Vec<bool>, ConfigError> {
    let group: usize = cfg.or("layer_group_size", 4)?;
    let whole = dims.layers / group.max(1) * group;
    Ok((0..dims.layers).map(|index| (index + 1).is_multiple_of(group) || index >= whole).collect())
}

fn blueprint(
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
