//! GPT-J: attention and MLP beside each other after one layer norm, neighbours rotate together.
//!
//! Source: mlx-lm `models/gptj.py`.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read_as(cfg, &DimFields::GPT2)? };
    let dims = dims.with_layer_norm(dims.norm.eps(), true);
    let rope = Rope::new(cfg.or("rotary_dim", dims.head_dim)?, 10_000.0).interleaved();
    let attention = Attention::new(&dims, Position::Rope(rope));
    let mlp = PlainMlp { width: 4 * dims.hidden, act: Activation::GeluTanh, bias: true };
    let rewrites = [
        vec![prefix("transformer", "model"), drop("model.h.*.attn.bias"), drop("model.h.*.attn.masked_bias")],
        modules([("model.wte", "model.embed_tokens"), ("model.ln_f", "model.norm")]),
        vec![prefix("model.h", "model.layers")],
        parts_of_layers([
            ("ln_1", "input_layernorm"),
            ("attn.out_proj", "self_attn.o_proj"),
            ("attn.*", "self_attn.*"),
            ("mlp.fc_in", "mlp.up_proj"),
            ("mlp.fc_out", "mlp.down_proj"),
        ]),
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(NormPlacement::PARALLEL);
    Ok(Blueprint { head_bias: true, rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
