//! Llama 4: experts that compute their input times its weight; layers that see a chunk, and layers that see everything
//! without a rotation.
//!
//! Source: mlx-lm `models/llama4.py`.

use super::names::*;
use super::parts::*;
use crate::*;

/// Of the norm on queries and keys, whatever the config says.
const HEAD_EPS: f32 = 1e-6;
/// Every so many layers one sees everything.
const PERIOD: usize = 4;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| missing("text_config"))?;
    text.only("nope_layer_interval", PERIOD)?;
    let dims = Dims { head: Head::Own, ..Dims::read(&text)? };
    let (chunked, full) = attentions(&text, &dims)?;
    let width = text.req("intermediate_size")?;
    let expert = GatedMlp { width, act: Activation::Silu, bias: false };
    let moe = Moe {
        experts: text.req("num_local_experts")?,
        top_k: text.or("num_experts_per_tok", 1)?,
        expert: expert.into(),
        router: Router { scores: RouteScores::Sigmoid, weighs: Weighs::Inputs, ..Router::SOFTMAX },
        shared: Some(SharedExpert { name: "shared_expert", width, gate: SharedGate::None, act: None }),
        latent: None,
        sum_bias: false,
    };
    let dense = expert.with_width(text.req("intermediate_size_mlp")?);
    let step: usize = text.or("interleave_moe_layer_step", 1)?;
    let layer = |number: usize| {
        let attention = if number.is_multiple_of(PERIOD) { &full } else { &chunked };
        let mlp: Mlp = if number.is_multiple_of(step) { moe.clone().into() } else { dense.into() };
        LayerSpec::pre_norm(attention.clone(), mlp, dims.norm)
    };
    let rewrites = [
        vec![drop("vision_model.**")],
        text_model(),
        parts_of_layers([
            ("feed_forward.router", "mlp.gate"),
            ("feed_forward.experts.*", "mlp.switch_mlp.*"),
        ]),
        tensors_of_layers([("feed_forward.**", "mlp.**")]),
        turned_experts(width),
    ];
    Ok(Blueprint {
        rewrites: rewrites.concat(),
        ..Blueprint::new(&dims, (1..=dims.layers).map(layer).collect())
    })
}

/// Of layers that see a chunk, and of those that see everything.
fn attentions(cfg: &Config, dims: &Dims) -> Result<(Attention, Attention), ConfigError> {
    let bias = cfg.or("attention_bias", false)?;
    let norm = Norm::RmsUnweighted { eps: HEAD_EPS };
    let norm = QkNorm { norm, over: NormOver::Head, at: NormAt::AfterRotation };
    let chunked = Attention {
        span: AttentionSpan::Chunk(cfg.req("attention_chunk_size")?),
        qk_norm: cfg.or("use_qk_norm", true)?.then_some(norm),
        ..Attention::new(dims, interleaved_rope(cfg, dims)?).with_bias(bias)
    };
    let (beta, period) = (cfg.or("attn_scale", 0.1)?, cfg.or("floor_scale", 8192)?);
    let tuned = is_on(cfg, "attn_temperature_tuning")?;
    let temperature = tuned.then_some(Temperature { beta, period, shift: 1 });
    let full = Attention { temperature, ..Attention::new(dims, Position::None).with_bias(bias) };
    Ok((chunked, full))
}
