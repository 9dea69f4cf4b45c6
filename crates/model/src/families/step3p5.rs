//! Step 3.5: heads, rotation and activation by layer, a gate on each head, sigmoid routing beside a shared expert.
//!
//! Source: mlx-lm `models/step3p5.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("sink", false)?;
    let fields = DimFields { kv_heads: "num_attention_groups", ..DimFields::LLAMA };
    let tied = cfg.or("tie_word_embeddings", false)?;
    let dims = Dims { head: if tied { Head::Tied } else { Head::Own }, ..Dims::read_as(cfg, &fields)? };
    let spans = layer_spans(cfg, dims.layers)?;
    let kinds = attention_by_span(cfg, &dims)?;
    let ropes = ropes(cfg, &dims, &spans)?;
    let mlps = mlps(cfg, &dims)?;
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
    let sliding = match cfg.section("attention_other_setting")? {
        Some(other) => {
            other.pass_by(&["attention_type", "head_dim", "true_head_dim"]);
            let (heads, kv_heads) = (other.req("num_attention_heads")?, other.req("num_attention_groups")?);
            of(&Dims { heads, kv_heads, ..*dims })
        }
        None => of(dims),
    };
    Ok([of(dims), sliding])
}

/// The rotation of each layer: a base, a part of the head, and a scaling for some kinds of layers.
fn ropes(cfg: &Config, dims: &Dims, spans: &[AttentionSpan]) -> Result<Vec<Rope>, ConfigError> {
    let bases = match cfg.opt::<Vec<f32>>("rope_theta") {
        Ok(bases) => bases.unwrap_or_default(),
        Err(_) => vec![cfg.req("rope_theta")?; dims.layers],
    };
    let parts: Vec<f32> = cfg.or("partial_rotary_factors", Vec::new())?;
    let only: Vec<String> = cfg.or("yarn_only_types", Vec::new())?;
    let scaling = Rope::read_scaling(cfg)?;
    let rope = |(at, span): (usize, &AttentionSpan)| {
        let kind = if *span == AttentionSpan::Full { "full_attention" } else { "sliding_attention" };
        let scales = only.is_empty() || only.iter().any(|only| only == kind);
        let part = parts.get(at).copied().unwrap_or(1.0);
        let base = bases.get(at).copied().unwrap_or(10_000.0);
        let scaling = if scales { scaling.clone() } else { Scaling::None };
        Rope { scaling, ..Rope::new((part * dims.head_dim as f32) as usize, base) }
    };
    Ok(spans.iter().enumerate().map(rope).collect())
}

fn mlps(cfg: &Config, dims: &Dims) -> Result<Vec<Mlp>, ConfigError> {
    let limits: [Vec<f32>; 2] =
        [cfg.or("swiglu_limits", Vec::new())?, cfg.or("swiglu_limits_shared", Vec::new())?];
    let [routed, shared] = limits;
    let act = |limits: &[f32], at: usize| match limits.get(at) {
        Some(limit) if *limit > 0.0 => Activation::LimitedSilu { limit: *limit },
        _ => Activation::Silu,
    };
    let enumerated: Option<String> = cfg.opt("moe_layers_enum")?;
    let is_routed = |at: usize| match &enumerated {
        Some(list) => list.split(',').any(|layer| layer.trim().parse() == Ok(at)),
        None => at > 0,
    };
    let width = cfg.req("intermediate_size")?;
    let moe = Moe {
        experts: cfg.or("moe_num_experts", 288)?,
        top_k: cfg.or("moe_top_k", 8)?,
        expert: GatedMlp {
            width: cfg.or("moe_intermediate_size", 1280)?,
            act: Activation::Silu,
            bias: false,
        }
        .into(),
        router: Router {
            renormalize: cfg.or("norm_expert_weight", true)?,
            scale: cfg.or("moe_router_scaling_factor", 3.0)?,
            ..Router::SIGMOID_CORRECTED
        },
        shared: None,
        latent: None,
    };
    let shared_width = cfg.or("share_expert_dim", 1280)?;
    let mlp = |at: usize| {
        if !is_routed(at) {
            return GatedMlp { width, act: act(&shared, at), bias: false }.into();
        }
        let expert = GatedMlp { width: moe.expert.width(), act: act(&routed, at), bias: false }.into();
        let shared = SharedExpert {
            name: "share_expert",
            width: shared_width,
            gate: SharedGate::None,
            act: Some(act(&shared, at)),
        };
        Moe { expert, shared: Some(shared), ..moe.clone() }.into()
    };
    Ok((0..dims.layers).map(mlp).collect())
}
