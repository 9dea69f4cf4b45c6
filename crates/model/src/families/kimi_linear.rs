//! Kimi Linear: Kimi's delta attention with latent attention in every few layers, and nothing that rotates.
//!
//! Source: mlx-lm `models/kimi_linear.py`; arXiv 2510.26692.

use super::kimi_k3;
use super::latent::*;
use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    // The text model of Kimi K3 is published under this type, too.
    if cfg.opt::<String>("hidden_act")?.as_deref() == Some("situ") {
        return kimi_k3::read(cfg);
    }
    let dims = Dims::read_untied(cfg)?;
    let eps = dims.norm.eps();
    let latent = LatentAttention { position: Position::None, ..latent_attention(cfg, &dims, eps)? };
    let section = cfg.section("linear_attn_config")?.ok_or_else(|| missing("linear_attn_config"))?;
    let delta = kimi_delta(&section, eps)?;
    let dense = GatedMlp::read(cfg)?;
    let moe = moe(cfg, dense)?;
    let mlps = dense_then_routed(cfg, dims.layers, dense, Some(moe.clone()))?;
    let recurs: Vec<usize> = section.req("kda_layers")?;
    let layer = |(mlp, number): (Mlp, usize)| {
        let mixer: Mixer = if recurs.contains(&number) { delta.into() } else { latent.clone().into() };
        LayerSpec::pre_norm(mixer, mlp, dims.norm)
    };
    let layers = mlps.into_iter().zip(1..).map(layer).collect();
    let names = kimi_names(&moe, &delta, &latent, dims.layers);
    Ok(Blueprint { rewrites: [vec![drop("model.mtp.**")], names].concat(), ..Blueprint::new(&dims, layers) })
}

/// From its names to ours.
pub(super) fn kimi_names(
    moe: &Moe,
    delta: &DeltaAttention,
    latent: &LatentAttention,
    layers: usize,
) -> Vec<WeightRewrite> {
    [
        tensors_of_layers([("block_sparse_moe.**", "mlp.**")]),
        numbered_matrices(),
        routed_rewrites(layers, Some(moe)),
        tensors_of_layers([("mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias")]),
        delta_names(delta),
        vec![split_latent(latent)],
    ]
    .concat()
}

/// Kimi's delta attention, whose decays and gates come from narrow vectors.
pub(super) fn kimi_delta(cfg: &Config, norm_eps: f32) -> Result<DeltaAttention, ConfigError> {
    cfg.pass_by(&["full_attn_layers", "kda_layers"]);
    let (heads, head_dim) = (cfg.req("num_heads")?, cfg.req("head_dim")?);
    Ok(DeltaAttention {
        k_heads: heads,
        v_heads: heads,
        k_dim: head_dim,
        v_dim: head_dim,
        conv_kernel_size: cfg.or("short_conv_kernel_size", 4)?,
        decay: Decay::PerChannel,
        decay_rank: Some(head_dim),
        write_scale: 1.0,
        gate: DeltaGate::Sigmoid,
        gate_rank: Some(head_dim),
        norm_eps,
    })
}

/// From Kimi's names of its tensors to ours.
fn delta_names(delta: &DeltaAttention) -> Vec<WeightRewrite> {
    let of_shape = |name: &str, shape: usize| WeightRewrite::Reshape {
        tensors: format!("model.layers.*.self_attn.{name}").into(),
        shape: vec![shape],
    };
    let convs = parts_of_layers([
        ("self_attn.q_conv.conv", "self_attn.q_conv1d"),
        ("self_attn.k_conv.conv", "self_attn.k_conv1d"),
        ("self_attn.v_conv.conv", "self_attn.v_conv1d"),
    ]);
    let shaped = vec![of_shape("A_log", delta.v_heads), of_shape("dt_bias", delta.v_heads * delta.k_dim)];
    [convs, delta_convs(), shaped].concat()
}

/// Its experts.
pub(super) fn moe(cfg: &Config, dense: GatedMlp) -> Result<Moe, ConfigError> {
    let kinds = [("sigmoid", RouteScores::Sigmoid), ("softmax", RouteScores::Softmax)];
    let scores = cfg.choice_opt("moe_router_activation_func", &kinds)?.unwrap_or(RouteScores::Sigmoid);
    let router = Router { scores, renormalize: true, ..Router::SIGMOID_CORRECTED };
    let fields = MoeFields {
        top_k: "num_experts_per_token",
        groups: "num_expert_group",
        renormalize: "moe_renormalize",
        ..MoeFields::COUNTED
    };
    moe_of(cfg, dense, router, &fields)?.ok_or_else(|| missing("num_experts"))
}
