//! Apertus: Llama with norms of other names on queries and keys, and an ungated MLP whose activation is learned.
//!
//! Source: mlx-lm `models/apertus.py`; arXiv 2411.13010 for xIELU.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_bias", false)?;
    cfg.only("post_norm", false)?;
    cfg.only("qk_norm", true)?;
    cfg.only("hidden_act", "xielu")?;
    let dims = Dims::read(cfg)?;
    let qk_norm = Some(QkNorm::per_head(dims.norm.eps()));
    let attention = Attention { qk_norm, ..Attention::new(&dims, rope(cfg, &dims)?) };
    let GatedMlp { width, .. } = GatedMlp::read(cfg)?;
    let mlp = PlainMlp { width, act: Activation::Xielu, bias: cfg.or("mlp_bias", false)? };
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm)
        .with_norms(NormPlacement::Pre { mixer: "attention_layernorm", mlp: "feedforward_layernorm" });
    let scalars = ["alpha_p", "alpha_n"].map(|name| WeightRewrite::Reshape {
        tensors: format!("model.layers.*.mlp.act_fn.{name}").into(),
        shape: Vec::new(),
    });
    Ok(Blueprint {
        rewrites: [vec![drop("**.rotary_emb.inv_freq")], scalars.into()].concat(),
        ..Blueprint::uniform(&dims, layer)
    })
}
