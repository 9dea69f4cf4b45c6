//! Laguna: heads and rotation by layer, a softplus gate on each head, sigmoid routing of capped logits.
//!
//! Source: mlx-lm `models/laguna.py`.

use super::by_layer::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let [full, sliding] = rope_by_kind(cfg, dims.head_dim)?;
    let gated = cfg.or("gating", true)?;
    let heads = match cfg.opt::<Vec<usize>>("num_attention_heads_per_layer")? {
        Some(heads) if heads.len() == dims.layers => heads,
        Some(_) => return Err(per_layer("num_attention_heads_per_layer")),
        None => vec![dims.heads; dims.layers],
    };
    let attention = |heads: usize, span: AttentionSpan| {
        let rope = if span == AttentionSpan::Full { &full } else { &sliding };
        Attention {
            span,
            qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
            out_gate: gated.then_some(OutputGate::PerHead(HeadGate::Softplus)),
            ..Attention::new(&Dims { heads, ..dims }, Position::Rope(rope.clone()))
        }
    };
    let biases = (cfg.or("qkv_bias", false)?, cfg.or("attention_bias", false)?);
    let dense = GatedMlp::read(cfg)?;
    let moe = moe(cfg, dense)?;
    let is_routed = match cfg.opt::<Vec<String>>("mlp_layer_types")? {
        Some(kinds) if kinds.len() == dims.layers => kinds.iter().map(|kind| kind == "sparse").collect(),
        Some(_) => return Err(per_layer("mlp_layer_types")),
        None => (0..dims.layers).map(|layer| layer > 0).collect::<Vec<bool>>(),
    };
    let spans = layer_spans(cfg, dims.layers)?;
    let layer = |((heads, span), is_routed): ((usize, AttentionSpan), bool)| {
        let (qkv_bias, out_bias) = biases;
        let mlp: Mlp = if is_routed { moe.clone().into() } else { dense.into() };
        LayerSpec::pre_norm(Attention { qkv_bias, out_bias, ..attention(heads, span) }, mlp, dims.norm)
    };
    let layers = heads.into_iter().zip(spans).zip(is_routed).map(layer).collect();
    let rewrites = [
        vec![prefix("language_model.model", "model"), prefix("language_model.lm_head", "lm_head")],
        tensors_of_layers([("mlp.experts.e_score_correction_bias", "mlp.gate.e_score_correction_bias")]),
        stacked_experts(moe.experts),
        parts_of_layers([("mlp.gate.proj", "mlp.gate"), ("self_attn.g_proj", "self_attn.gate_proj")]),
    ];
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers) })
}

fn moe(cfg: &Config, dense: GatedMlp) -> Result<Moe, ConfigError> {
    let kinds = [("sigmoid", RouteScores::Sigmoid), ("sqrtsoftplus", RouteScores::SqrtSoftplus)];
    let cap: f32 = cfg.or("moe_router_logit_softcapping", 0.0)?;
    let width = cfg.or("shared_expert_intermediate_size", 512)?;
    Ok(Moe {
        latent: None,
        sum_bias: false,
        experts: cfg.or("num_experts", 256)?,
        top_k: cfg.or("num_experts_per_tok", 8)?,
        expert: dense.with_width(cfg.or("moe_intermediate_size", 512)?).into(),
        router: Router {
            scores: cfg.choice_opt("moe_router_score_func", &kinds)?.unwrap_or(RouteScores::Sigmoid),
            logit_softcap: (cap > 0.0).then_some(cap),
            renormalize: true,
            scale: cfg.or("moe_routed_scaling_factor", 1.0)?,
            ..Router::SIGMOID_CORRECTED
        },
        shared: Some(SharedExpert { name: "shared_expert", width, gate: SharedGate::None, act: None }),
    })
}

fn per_layer(field: &str) -> ConfigError {
    ConfigError::Inconsistent { rules: vec![format!("`{field}` names every layer")] }
}
