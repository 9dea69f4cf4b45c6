//! gpt-oss: every second layer has a window, heads have sinks, experts clip what they gate.
//!
//! Source: mlx-lm `models/gpt_oss.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use crate::*;

/// Of the experts' activation.
const SWIGLU: Activation = Activation::ClippedSwiglu { alpha: 1.702, limit: 7.0 };

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    if let Some(scaling) = cfg.section("rope_scaling")? {
        scaling.pass_by(&["truncate"]); // mlx-lm truncates whatever it says.
    }
    let attention =
        Attention { sink_logits: true, ..Attention::new(&dims, rope(cfg, &dims)?).with_bias(true) };
    let moe = Moe {
        latent: None,
        sum_bias: false,
        experts: cfg.or("num_local_experts", 128)?,
        top_k: cfg.or("num_experts_per_tok", 4)?,
        expert: GatedMlp { width: cfg.req("intermediate_size")?, act: SWIGLU, bias: true }.into(),
        router: Router { scores: RouteScores::ChosenSoftmax, bias: true, ..Router::SOFTMAX },
        shared: None,
    };
    let window = AttentionSpan::Window(cfg.or("sliding_window", 128)?);
    let layer = |span| LayerSpec::pre_norm(Attention { span, ..attention.clone() }, moe.clone(), dims.norm);
    let layers = by_kind_or_every(cfg, 2, dims.layers, [layer(AttentionSpan::Full), layer(window)])?;
    let mut rewrites = parts_of_layers([("mlp.router", "mlp.gate"), ("mlp.experts.*", "mlp.switch_mlp.*")]);
    let of_experts = |name: &str| Pattern::from(format!("model.layers.*.mlp.switch_mlp.{name}.*"));
    rewrites.push(WeightRewrite::Deinterleave {
        from: of_experts("gate_up_proj"),
        to: vec![of_experts("gate_proj"), of_experts("up_proj")],
    });
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, layers) })
}
