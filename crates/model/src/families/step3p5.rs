//! Step 3.5: heads, rotation and activation by layer, a gate on each head, sigmoid routing beside a shared expert.
//!
//! Source: mlx-lm `models/step3p5.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("sink", false)?;
    let fields = DimFields { kv_heads: "num_attention_groups", ..DimFields::LLAMA };
    let dims = Dims::read_untied_as(cfg, &fields)?;
    let spans = layer_spans(cfg, dims.layers)?;
    let kinds = attention_by_span(cfg, &dims)?;
    let ropes = ropes(cfg, &dims, &spans)?;
    let mlps = mlps(cfg, dims.layers)?;
    let layer = |((span, rope), mlp): ((&AttentionSpan, Rope), Mlp)| {
        let kind = if *span == AttentionSpan::Full { &kinds[0] } else { &kinds[1] };
        let attention = Attention { span: *span, position: Position::Rope(rope), ..kind.clone() };
        LayerSpec::pre_norm(attention, mlp, dims.norm)
    };
    let layers = spans.iter().zip(ropes).zip(mlps).map(layer).collect();
    // Published experts are tensors of all of them; converted ones are below `mlp`.
    let published = When::Published("model.layers.*.moe.**".into());
    let rewrites = [
        vec![drop("**.mtp.**"), WeightRewrite::DropLayersFrom { layers: dims.layers }],
        add_one_to_norms(published).collect(),
        parts_of_layers([
            ("moe.gate", "mlp.gate"),
            ("mlp.gate.gate", "mlp.gate"),
            ("self_attn.g_proj", "self_attn.gate_proj"),
        ]),
        tensors_of_layers([
            ("moe.router_bias", "mlp.gate.e_score_correction_bias"),
            ("mlp.gate.router_bias", "mlp.gate.e_score_correction_bias"),
            ("moe.*.*", "mlp.switch_mlp.*.*"),
            ("share_expert.*.*", "mlp.share_expert.*.*"),
        ]),
    ];
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers) })
}

/// Attention of layers without and with a window.
fn attention_by_span(cfg: &Config, dims: &Dims) -> Result<[Attention; 2], ConfigError> {
    let gated = cfg.or("use_head_wise_attn_gate", true)?;
    let of = |dims: &Dims| Attention {
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        out_gate: gated.then_some(OutputGate::PerHead(HeadGate::Sigmoid)),
        ..Attention::new(dims, Position::None)
    };
    let Some(other) = cfg.section("attention_other_setting")? else { return Ok([of(dims), of(dims)]) };
    other.pass_by(&["attention_type", "head_dim", "true_head_dim"]);
    let (heads, kv_heads) = (other.req("num_attention_heads")?, other.req("num_attention_groups")?);
    Ok([of(dims), of(&Dims { heads, kv_heads, ..*dims })])
}

/// The rotation of each layer: a base, a part of the head, and a scaling for some kinds of layers.
fn ropes(cfg: &Config, dims: &Dims, spans: &[AttentionSpan]) -> Result<Vec<Rope>, ConfigError> {
    let bases = per_layer_or(cfg, "rope_theta", dims.layers, 10_000.0)?;
    let parts = per_layer_or::<f32>(cfg, "partial_rotary_factors", dims.layers, 1.0)?;
    let scaled: Vec<String> = cfg.or("yarn_only_types", Vec::new())?;
    let scaling = Rope::read_scaling(cfg)?;
    let rope = |((base, part), span): ((f32, f32), &AttentionSpan)| {
        let kind = if *span == AttentionSpan::Full { "full_attention" } else { "sliding_attention" };
        let scales = scaled.is_empty() || scaled.iter().any(|scaled| scaled == kind);
        let scaling = if scales { scaling.clone() } else { Scaling::None };
        Rope { scaling, ..Rope::new((part * dims.head_dim as f32) as usize, base) }
    };
    Ok(bases.into_iter().zip(parts).zip(spans).map(rope).collect())
}

/// Experts in the layers that are listed, in all but the first if none are. Some layers limit activations.
fn mlps(cfg: &Config, layers: usize) -> Result<Vec<Mlp>, ConfigError> {
    let acts = |field| -> Result<Vec<Activation>, ConfigError> {
        let act = |limit| if limit > 0.0 { Activation::LimitedSilu { limit } } else { Activation::Silu };
        Ok(per_layer_or(cfg, field, layers, 0.0)?.into_iter().map(act).collect())
    };
    let listed: Option<String> = cfg.opt("moe_layers_enum")?;
    let is_routed = |at: usize| match &listed {
        Some(list) => list.split(',').any(|layer| layer.trim().parse() == Ok(at)),
        None => at > 0,
    };
    let router = Router {
        renormalize: cfg.or("norm_expert_weight", true)?,
        scale: cfg.or("moe_router_scaling_factor", 3.0)?,
        ..Router::SIGMOID_CORRECTED
    };
    let (experts, top_k) = (cfg.or("moe_num_experts", 288)?, cfg.or("moe_top_k", 8)?);
    let (dense, width) = (cfg.req("intermediate_size")?, cfg.or("moe_intermediate_size", 1280)?);
    let shared = SharedExpert::new("share_expert", cfg.or("share_expert_dim", 1280)?);
    let mlp = |(at, (routed, other)): (usize, (Activation, Activation))| match is_routed(at) {
        true => Moe::new(experts, top_k, GatedMlp::new(width, routed), router)
            .with_shared(SharedExpert { act: Some(other), ..shared })
            .into(),
        false => GatedMlp::new(dense, other).into(),
    };
    Ok(acts("swiglu_limits")?.into_iter().zip(acts("swiglu_limits_shared")?).enumerate().map(mlp).collect())
}
