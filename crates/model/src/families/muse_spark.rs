//! Muse Spark, the text model: gated attention whose heads are normed, routed experts at a narrower width, and gates on a
//! stream in float32.
//!
//! Source: mlx-lm `models/muse_spark.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?;
    let text = text.as_ref().unwrap_or(cfg);
    text.only("num_shared_experts", 0)?;
    let dims = Dims::read_untied(text)?;
    let unweighted = Norm::RmsUnweighted { eps: dims.norm.eps() };
    let attention = Attention {
        scale: (dims.head_dim as f32).powf(-0.5) * text.or::<f32>("qk_scale_factor", 5.473_006_5)?,
        qk_norm: Some(QkNorm { norm: unweighted, over: NormOver::Head, at: NormAt::BeforeRotation }),
        out_norm: Some(OutNorm::EachHead(dims.norm.eps())),
        out_gate: Some(OutputGate::PerElement),
        ..Attention::new(&dims, interleaved_rope(text, &dims)?)
    };
    let after = text.req("post_norm_eps")?;
    let moe = moe(text, &dims, after)?;
    let layer = |(span, rotates): (AttentionSpan, bool)| {
        let position = if rotates { attention.position.clone() } else { Position::None };
        LayerSpec {
            residual: Residual::Gated,
            norms_after: Some([Norm::RmsUnweighted { eps: after }, Norm::ScaledRms { eps: after }]),
            ..LayerSpec::pre_norm(Attention { span, position, ..attention.clone() }, moe.clone(), dims.norm)
                .with_norms(NormPlacement::GEMMA)
        }
    };
    // Layers with a theta rotate.
    let rotate =
        each_layer::<f32>(text, "layer_rope_theta", dims.layers)?.into_iter().map(|theta| theta != 0.0);
    let kinds = layer_spans(text, dims.layers)?.into_iter().zip(rotate);
    Ok(Blueprint {
        stream: StreamKind::F32,
        embed_norm: Some(unweighted),
        logit_scale: text.req("output_multiplier")?,
        logit_softcap: Some(text.req("final_logit_softcapping")?),
        rewrites: rewrites(&attention, moe.expert.width()),
        ..Blueprint::new(&dims, kinds.map(layer).collect())
    })
}

/// Every layer is routed. Logits of the router are scaled like those of tokens.
fn moe(cfg: &Config, dims: &Dims, norm_eps: f32) -> Result<Moe, ConfigError> {
    cfg.only("mlp_layer_types", vec!["sparse"; dims.layers])?;
    let router = Router {
        logit_scale: cfg.req("output_multiplier")?,
        renormalize: true,
        scale: cfg.or("routed_scaling_factor", 1.0)?,
        ..Router::SIGMOID_CORRECTED
    };
    let of_each = Some(Norm::ScaledRms { eps: norm_eps });
    let norms = LatentNorms { before: Some(dims.norm), of_each, of_sum: None };
    let latent = Some(Latent { width: cfg.req("moe_hidden_size")?, norms });
    let expert = GatedMlp::new(cfg.req("moe_intermediate_size")?, Activation::Silu);
    let (experts, top_k) = (cfg.req("num_local_experts")?, cfg.req("num_experts_per_tok")?);
    Ok(Moe { latent, ..Moe::new(experts, top_k, expert, router) })
}

fn rewrites(attention: &Attention, expert_width: usize) -> Vec<WeightRewrite> {
    let at = |name: &str| format!("model.layers.*.{name}");
    let shares = |gate: &str, part: &str| WeightRewrite::GateShares {
        from: at(&format!("{gate}_residual_gate.gate")).into(),
        stays: at(&format!("{part}_alpha")).into(),
        joins: at(&format!("{part}_beta")).into(),
    };
    [
        centered_norms(),
        text_model(),
        vec![shares("post_attention", "add_attn"), shares("post_feedforward", "add_ffn")],
        pairs_side_by_side(attention),
        vec![split_qkv_and_gate(&at("self_attn.qkvg_proj"), attention)],
        parts_of_layers([
            ("mlp.pre_expert_proj", "mlp.fc1_latent_proj"),
            ("mlp.pre_expert_norm", "mlp.fc1_latent_norm"),
            ("mlp.post_expert_proj", "mlp.fc2_latent_proj"),
            ("mlp.experts.post_expert_norm", "mlp.expert_norm"),
        ]),
        joined_experts(expert_width),
        tensors_of_layers([("mlp.experts.*.*", "mlp.switch_mlp.*.*")]),
    ]
    .concat()
}

/// Published norms of layers are stored as `weight − 1`; the reference keeps the sums in bfloat16.
fn centered_norms() -> Vec<WeightRewrite> {
    let published = || When::Published("model.language_model.layers.*.*.gate".into());
    let centered = |norm: &str| {
        let tensors = || Pattern::from(format!("model.language_model.layers.*.{norm}.weight"));
        [
            WeightRewrite::Add { tensors: tensors(), amount: 1.0, when: published() },
            WeightRewrite::RoundToBf16 { tensors: tensors(), when: published() },
        ]
    };
    ["*", "mlp.pre_expert_norm", "mlp.experts.post_expert_norm"].map(centered).concat()
}
