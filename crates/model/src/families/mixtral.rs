//! Mixtral: Mistral with routed experts in every layer.
//!
//! Source: mlx-lm `models/mixtral.py`.

use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("sliding_window", serde_json::Value::Null)?;
    cfg.only("moe_frequency", 1)?;
    let dims = Dims::read(cfg)?;
    let (experts, top_k) = (cfg.or("num_local_experts", 8)?, cfg.or("num_experts_per_tok", 2)?);
    let expert = GatedMlp::read(cfg)?;
    let moe = Moe::new(experts, top_k, expert, Router::SOFTMAX_RENORMALIZED);
    let attention = Attention::new(&dims, Position::Rope(Rope::read(cfg, dims.head_dim)?));
    let layer = LayerSpec::pre_norm(Mixer::Attention(attention), Mlp::Moe(moe), dims.norm);
    let layer = LayerSpec { mlp_name: "block_sparse_moe", ..layer };
    let rewrites = [("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")].map(|(from, to)| {
        WeightRewrite::StackExperts {
            from: format!("model.layers.*.block_sparse_moe.experts.#.{from}.*").into(),
            to: format!("model.layers.*.block_sparse_moe.switch_mlp.{to}.*").into(),
            experts,
        }
    });
    Ok(Blueprint { rewrites: rewrites.into(), ..Blueprint::new(&dims, vec![layer; dims.layers]) })
}
