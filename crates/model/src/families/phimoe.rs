//! Phi-3.5-MoE: layer norms, biases everywhere, experts chosen one after the other.
//!
//! Source: mlx-lm `models/phimoe.py`.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let dims = dims.with_layer_norm(dims.norm.eps(), true);
    let rope = Rope::read(cfg, dims.head_dim)?;
    let attention = Attention::new(&dims, Position::Rope(rope)).with_bias(true);
    let moe = Moe {
        latent: None,
        sum_bias: false,
        experts: cfg.or("num_local_experts", 16)?,
        top_k: cfg.or("num_experts_per_tok", 2)?,
        expert: GatedMlp { width: cfg.req("intermediate_size")?, act: Activation::Silu, bias: false }.into(),
        router: Router {
            choice: ExpertChoice::SparseMixer(cfg.or("router_jitter_noise", 0.01)?),
            ..Router::SOFTMAX
        },
        shared: None,
    };
    let rewrites = [
        tensors_of_layers([("block_sparse_moe.**", "mlp.**")]),
        numbered_matrices(),
        stacked_experts(moe.experts),
    ];
    let layer = LayerSpec::pre_norm(attention, moe, dims.norm);
    Ok(Blueprint { head_bias: true, rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
