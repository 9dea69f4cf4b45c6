//! What Kimi Linear and Kimi K3 share: delta attention, experts, and names.

use super::latent::*;
use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

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

/// Its experts.
pub(super) fn moe(cfg: &Config, dense: GatedMlp) -> Result<Moe, ConfigError> {
    let scores = cfg.choice_opt("moe_router_activation_func", ROUTE_SCORES)?;
    let scores = scores.unwrap_or(RouteScores::Sigmoid);
    let router = Router { scores, renormalize: true, ..Router::SIGMOID_CORRECTED };
    let fields = MoeFields {
        top_k: "num_experts_per_token",
        groups: "num_expert_group",
        renormalize: "moe_renormalize",
        ..MoeFields::COUNTED
    };
    moe_of(cfg, dense, router, &fields)?.ok_or_else(|| missing("num_experts"))
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

/// mlx-lm joins projections and convolutions.
pub(super) fn joined_projections(delta: &DeltaAttention) -> Vec<WeightRewrite> {
    let widths = [("q", delta.keys()), ("k", delta.keys()), ("v", delta.values())];
    let named = |suffix: &str| widths.map(|(part, width)| (format!("{part}_{suffix}"), width));
    let split_to = |from: &str, names: [(String, usize); 3]| {
        let parts: Vec<(&str, usize)> = names.iter().map(|(name, width)| (name.as_str(), *width)).collect();
        split(from, &parts)
    };
    vec![
        split_to("model.layers.*.self_attn.qkv_proj", named("proj")),
        prefix_of_layers("self_attn.qkv_conv.conv", "self_attn.qkv_conv1d"),
        split_to("model.layers.*.self_attn.qkv_conv1d", named("conv1d")),
    ]
}

fn prefix_of_layers(from: &str, to: &str) -> WeightRewrite {
    let at = |name: &str| Pattern::from(format!("model.layers.*.{name}.*"));
    WeightRewrite::Rename { from: at(from), to: at(to) }
}

pub(super) fn history_names() -> Vec<WeightRewrite> {
    let of_layers = tensors_of_layers([
        ("self_attention_res.proj_weight", "self_attention_res_proj.weight"),
        ("self_attention_res.norm_weight", "self_attention_res_norm.weight"),
        ("mlp_res.proj_weight", "mlp_res_proj.weight"),
        ("mlp_res.norm_weight", "mlp_res_norm.weight"),
    ]);
    let of_output = ["proj", "norm"].map(|part| WeightRewrite::Rename {
        from: format!("model.output_attn_res.{part}_weight").into(),
        to: format!("model.output_attn_res_{part}.weight").into(),
    });
    [of_layers, of_output.into()].concat()
}
