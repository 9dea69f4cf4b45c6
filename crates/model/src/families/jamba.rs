//! Jamba: Mamba layers with attention in some, routed experts in some, and no rotation at all.
//!
//! Source: mlx-lm `models/jamba.py`.

use super::mamba::step_rank;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("sliding_window", serde_json::Value::Null)?;
    let dims = Dims::read(cfg)?;
    let attention = Attention::new(&dims, Position::None);
    let mamba = Mamba1 {
        inner: cfg.req::<usize>("mamba_expand")? * dims.hidden,
        state_dim: cfg.req("mamba_d_state")?,
        conv_kernel_size: cfg.req("mamba_d_conv")?,
        step_rank: step_rank(cfg, "mamba_dt_rank", dims.hidden)?,
        bias: cfg.or("mamba_proj_bias", false)?,
        conv_bias: cfg.or("mamba_conv_bias", true)?,
        step_norms: Some(StepNorms::Weighted(dims.norm.eps())),
    };
    let dense = GatedMlp::read(cfg)?;
    let moe = Moe {
        experts: cfg.req("num_experts")?,
        top_k: cfg.req("num_experts_per_tok")?,
        expert: dense.into(),
        router: Router { scores: RouteScores::ChosenSoftmax, ..Router::SOFTMAX },
        shared: None,
        latent: None,
        sum_bias: false,
    };
    let count = |field: &str| cfg.req::<usize>(field);
    let (attn_period, attn_offset) = (count("attn_layer_period")?, count("attn_layer_offset")?);
    let (moe_period, moe_offset) = (count("expert_layer_period")?, count("expert_layer_offset")?);
    let kinds: Option<Vec<String>> = cfg.opt("layers_block_type")?;
    let norms = NormPlacement::Pre { mixer: "input_layernorm", mlp: "pre_ff_layernorm" };
    let layer = |at: usize| {
        let attends = match &kinds {
            Some(kinds) => kinds.get(at).is_some_and(|kind| kind == "attention"),
            None => at.checked_rem(attn_period) == Some(attn_offset),
        };
        let routed = moe.experts > 1 && (at + moe_offset).is_multiple_of(moe_period);
        let (mixer_name, mixer): (_, Mixer) =
            if attends { ("self_attn", attention.clone().into()) } else { ("mamba", mamba.into()) };
        let mlp: Mlp = if routed { moe.clone().into() } else { dense.into() };
        LayerSpec { mixer_name, ..LayerSpec::pre_norm(mixer, mlp, dims.norm).with_norms(norms) }
    };
    let rewrites = [
        vec![conv_to_mlx()],
        modules([("model.final_layernorm", "model.norm")]),
        parts_of_layers([("feed_forward.router", "mlp.gate")]),
        tensors_of_layers([("feed_forward.**", "mlp.**")]),
        stacked_experts(moe.experts),
    ];
    Ok(Blueprint {
        rewrites: rewrites.concat(),
        ..Blueprint::new(&dims, (0..dims.layers).map(layer).collect())
    })
}
