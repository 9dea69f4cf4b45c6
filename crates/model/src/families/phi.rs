//! Phi-1, 1.5 and 2: attention and MLP beside each other after one layer norm, partial rotation, biases everywhere.
//!
//! Source: mlx-lm `models/phi.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("qk_layernorm", false)?;
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let dims = dims.with_layer_norm(cfg.or("layer_norm_eps", 1e-5)?, true);
    let attention = Attention::new(&dims, partial_rope(cfg, &dims, 0.4)?).with_bias(true);
    let mlp = PlainMlp { width: cfg.req("intermediate_size")?, act: Activation::GeluTanh, bias: true };
    let rewrites = [
        modules([("model.final_layernorm", "model.norm")]),
        parts_of_layers([
            ("self_attn.dense", "self_attn.o_proj"),
            ("mlp.fc1", "mlp.up_proj"),
            ("mlp.fc2", "mlp.down_proj"),
        ]),
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(NormPlacement::PARALLEL);
    Ok(Blueprint { head_bias: true, rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
