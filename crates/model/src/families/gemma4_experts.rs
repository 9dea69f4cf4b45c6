//! Gemma 4's layers: a dense MLP, and in some models experts beside it.

use super::names::*;
use super::parts::*;
use crate::*;

/// A layer with its MLP, and in some models experts beside it.
pub(super) fn layer(
    cfg: &Config,
    dims: &Dims,
    attention: Attention,
    mlp: GatedMlp,
) -> Result<LayerSpec, ConfigError> {
    let NormPlacement::Sandwich { mixer, mlp: [_, after] } = NormPlacement::GEMMA else {
        return Err(missing("layer_types"));
    };
    cfg.pass_by(&["num_experts", "top_k_experts", "moe_intermediate_size"]);
    if !cfg.or("enable_moe_block", false)? {
        return Ok(LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(NormPlacement::GEMMA));
    }
    let router = Router { scores: RouteScores::ChosenSoftmax, expert_scales: true, ..Router::SOFTMAX };
    let expert = mlp.with_width(cfg.req("moe_intermediate_size")?);
    let routed = Moe::new(cfg.req("num_experts")?, cfg.req("top_k_experts")?, expert, router);
    let both = DenseAndRouted { dense: mlp, routed, norm: dims.norm };
    let norms = NormPlacement::OpenSandwich { mixer, mlp: after };
    Ok(LayerSpec::pre_norm(attention, both, dims.norm).with_norms(norms))
}

/// From its names of experts to ours; a dense MLP beside them has a name of its own.
pub(super) fn expert_names(cfg: &Config, dims: &Dims) -> Result<Vec<WeightRewrite>, ConfigError> {
    if !cfg.or("enable_moe_block", false)? {
        return Ok(Vec::new());
    }
    // The router's norm has a further factor.
    let router = WeightRewrite::Scale {
        tensors: "model.layers.*.mlp.router_norm.weight".into(),
        factors: vec![(dims.hidden as f32).powf(-0.5)],
        when: When::Always,
    };
    let names = [
        parts_of_layers([
            ("mlp.gate_proj", "mlp.dense.gate_proj"),
            ("mlp.up_proj", "mlp.dense.up_proj"),
            ("mlp.down_proj", "mlp.dense.down_proj"),
            ("experts.switch_glu.*", "mlp.switch_mlp.*"),
            ("router.proj", "mlp.gate"),
        ]),
        tensors_of_layers([
            ("experts.*", "mlp.experts.*"),
            ("router.per_expert_scale", "mlp.gate.per_expert_scale"),
            ("router.scale", "mlp.router_norm.weight"),
            ("pre_feedforward_layernorm.weight", "mlp.dense_norm.weight"),
            ("post_feedforward_layernorm_1.weight", "mlp.dense_norm_after.weight"),
            ("pre_feedforward_layernorm_2.weight", "mlp.routed_norm.weight"),
            ("post_feedforward_layernorm_2.weight", "mlp.routed_norm_after.weight"),
        ]),
        joined_experts(cfg.req("moe_intermediate_size")?),
        vec![router],
    ];
    Ok(names.concat())
}
