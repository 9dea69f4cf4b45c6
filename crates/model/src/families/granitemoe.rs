//! Granite 3 with routed experts: the multipliers of Granite, logits choose and a softmax over the chosen weighs.
//!
//! Source: mlx-lm `models/granitemoe.py`.

use super::granite;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let attention = granite::attention(cfg, &dims, rope(cfg, &dims)?)?;
    let moe = Moe { shared: None, ..moe(cfg)? };
    let residual = Residual::Scaled(cfg.req("residual_multiplier")?);
    let rewrites = expert_names(&moe);
    let layer = LayerSpec { residual, ..LayerSpec::pre_norm(attention, moe, dims.norm) };
    Ok(Blueprint { rewrites, ..granite::blueprint(cfg, &dims, vec![layer; dims.layers])? })
}

/// Its experts.
pub(super) fn moe(cfg: &Config) -> Result<Moe, ConfigError> {
    Ok(Moe {
        latent: None,
        sum_bias: false,
        experts: cfg.req("num_local_experts")?,
        top_k: cfg.req("num_experts_per_tok")?,
        expert: GatedMlp::read(cfg)?.into(),
        router: Router { scores: RouteScores::ChosenSoftmax, ..Router::SOFTMAX },
        shared: None,
    })
}

/// From its names to ours.
pub(super) fn expert_names(moe: &Moe) -> Vec<WeightRewrite> {
    let renamed = parts_of_layers([
        ("block_sparse_moe.router.layer", "mlp.gate"),
        ("block_sparse_moe.input_linear", "mlp.switch_mlp.gate_up_proj"),
        ("block_sparse_moe.output_linear", "mlp.switch_mlp.down_proj"),
        ("block_sparse_moe.switch_mlp.*", "mlp.switch_mlp.*"),
    ]);
    let halves = split_gate_up("model.layers.*.mlp.switch_mlp.gate_up_proj", moe.expert.width());
    [renamed, vec![halves]].concat()
}
