//! Kimi K3, the text model: Kimi Linear with a bounded activation, experts at a narrower width, and parts that read a mean
//! of the stream at the beginnings of blocks.
//!
//! Source: mlx-lm `models/kimi_k3.py`.

use super::kimi::*;
use super::latent::*;
use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

/// Of the norms inside attention, whatever the config says of the others.
const INNER_EPS: f32 = 1e-6;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?;
    let text = text.as_ref().unwrap_or(cfg);
    text.only("hidden_act", "situ")?;
    text.only("mla_use_nope", true)?;
    let dims = Dims::read_untied(text)?;
    let section = text.section("linear_attn_config")?.ok_or_else(|| missing("linear_attn_config"))?;
    let delta = delta(&section, dims.norm.eps())?;
    let gated = text.or("mla_use_output_gate", false)?;
    let latent = LatentAttention {
        position: Position::None,
        out_gate: gated.then_some(OutputGate::PerElement),
        ..latent_attention(text, &dims, INNER_EPS)?
    };
    let act = Activation::Situ {
        beta: text.opt("activation_situ_beta")?.filter(|beta| *beta != 0.0).unwrap_or(1.0),
        linear_beta: text.opt("activation_situ_linear_beta")?,
    };
    let dense = GatedMlp { width: text.req("intermediate_size")?, act, bias: false };
    let moe = Moe { latent: narrow(text, &dims)?, ..moe(text, dense)? };
    let mlps = dense_then_routed(text, dims.layers, dense, Some(moe.clone()))?;
    let recurs: Vec<usize> = section.req("kda_layers")?;
    let block: Option<usize> = text.opt("attn_res_block_size")?;
    let layer = |(mlp, number): (Mlp, usize)| {
        let mixer: Mixer = if recurs.contains(&number) { delta.into() } else { latent.clone().into() };
        LayerSpec::pre_norm(mixer, mlp, dims.norm)
    };
    let layers: Vec<LayerSpec> = mlps.into_iter().zip(1..).map(layer).collect();
    let gate = |number: usize| {
        let at = |name: &str| format!("model.layers.{}.self_attn.{name}", number - 1);
        (!recurs.contains(&number)).then(|| prefix(&at("g_proj"), &at("gate_proj")))
    };
    let rewrites = [
        vec![drop("mm_projector.**"), drop("vision_model.**")],
        // As mlx-lm, which takes the head outside the text model where there are two.
        vec![WeightRewrite::DropBeside {
            tensors: "language_model.lm_head.*".into(),
            other: "lm_head.weight".into(),
        }],
        text_model(),
        (1..=dims.layers).filter_map(gate).collect(),
        joined_projections(&delta),
        kimi_names(&moe, &delta, &latent, dims.layers),
        parts_of_layers([
            ("mlp.routed_expert_down_proj", "mlp.fc1_latent_proj"),
            ("mlp.routed_expert_up_proj", "mlp.fc2_latent_proj"),
            ("mlp.routed_expert_norm", "mlp.latent_norm"),
        ]),
        history_names(),
    ];
    Ok(Blueprint {
        stream: block.map_or(StreamKind::Plain, |block| StreamKind::History { block }),
        rewrites: rewrites.concat(),
        ..Blueprint::new(&dims, layers)
    })
}

fn delta(cfg: &Config, norm_eps: f32) -> Result<DeltaAttention, ConfigError> {
    let delta = kimi_delta(cfg, norm_eps)?;
    let full = cfg.or("use_full_rank_gate", false)?;
    let bound = cfg.opt("gate_lower_bound")?;
    Ok(DeltaAttention {
        decay: bound.map_or(Decay::PerChannel, Decay::Bounded),
        gate_rank: delta.gate_rank.filter(|_| !full),
        ..delta
    })
}

/// The narrower width of routed experts.
fn narrow(cfg: &Config, dims: &Dims) -> Result<Option<Latent>, ConfigError> {
    let normed = cfg.or("latent_moe_use_norm", false)?;
    let width = cfg.opt("routed_expert_hidden_size")?;
    let norms = LatentNorms { of_sum: normed.then_some(dims.norm), ..LatentNorms::default() };
    Ok(width.map(|width| Latent { width, norms }))
}
