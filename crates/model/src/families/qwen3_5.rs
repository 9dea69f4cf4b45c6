//! Qwen3.5: Qwen3-Next's layers with projections stored part by part, below a picture encoder.
//!
//! Source: mlx-lm `models/qwen3_5.py`, `models/qwen3_5_moe.py`.

use super::names::*;
use super::parts::*;
use super::qwen3_next;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?;
    let text = text.as_ref().unwrap_or(cfg);
    text.only("output_gate_type", "swish")?;
    text.only("mlp_only_layers", serde_json::json!([]))?;
    let (dims, attention, delta) = qwen3_next::mixers(text)?;
    let mlps = mlps(text, &dims)?;
    let mut rewrites = vec![drop("mtp.**")];
    rewrites.extend(text_model());
    let conv = "model.layers.*.linear_attn.conv1d.weight";
    rewrites.extend(add_one_to_norms(When::LastAxisIsNot(conv.into(), 1)));
    rewrites.push(conv_to_mlx());
    if let Some(Mlp::Moe(moe)) = mlps.first() {
        rewrites.extend(joined_experts(moe.expert.width()));
        rewrites.extend(stack_experts(&mlps));
    }
    Ok(Blueprint { rewrites, ..qwen3_next::blueprint(text, &dims, attention, delta, mlps)? })
}

fn mlps(cfg: &Config, dims: &Dims) -> Result<Vec<Mlp>, ConfigError> {
    if cfg.opt::<usize>("num_experts")?.is_none_or(|experts| experts == 0) {
        return Ok(vec![GatedMlp::read(cfg)?.into(); dims.layers]);
    }
    let width = cfg.req("shared_expert_intermediate_size")?;
    Ok(vec![
        Moe {
            experts: cfg.req("num_experts")?,
            top_k: cfg.req("num_experts_per_tok")?,
            expert: GatedMlp { width: cfg.req("moe_intermediate_size")?, act: Activation::Silu, bias: false }
                .into(),
            router: Router { renormalize: cfg.or("norm_topk_prob", true)?, ..Router::SOFTMAX },
            shared: Some(SharedExpert { name: "shared_expert", width, gate: SharedGate::Sigmoid, act: None }),
            latent: None,
            sum_bias: false,
        }
        .into();
        dims.layers
    ])
}
