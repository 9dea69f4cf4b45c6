//! MiniMax-M2: norms over whole queries and keys, partial rotation, sigmoid routing in every layer.
//!
//! Source: mlx-lm `models/minimax.py`.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("scoring_func", "sigmoid")?;
    cfg.only("shared_intermediate_size", 0)?;
    cfg.pass_by(&[
        // `rotary_dim` says the same.
        "partial_rotary_factor",
        "use_routing_bias",
        "output_router_logits",
        "router_jitter_noise",
        "layernorm_full_attention_beta",
    ]);
    let dims = Dims::read_untied(cfg)?;
    let normed = cfg.or("use_qk_norm", true)?;
    let attention = Attention {
        qk_norm: normed.then(|| QkNorm::full_width(dims.norm.eps())),
        ..Attention::new(&dims, Position::Rope(Rope::read(cfg, cfg.req("rotary_dim")?)?))
    };
    let moe = Moe {
        latent: None,
        sum_bias: false,
        experts: cfg.req("num_local_experts")?,
        top_k: cfg.req("num_experts_per_tok")?,
        expert: GatedMlp::read(cfg)?.into(),
        router: Router { renormalize: true, ..Router::SIGMOID_CORRECTED },
        shared: None,
    };
    let rewrites = [
        tensors_of_layers([("block_sparse_moe.**", "mlp.**")]),
        numbered_matrices(),
        stacked_experts(moe.experts),
        tensors_of_layers([("mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias")]),
    ];
    let layer = LayerSpec::pre_norm(attention, moe, dims.norm);
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
