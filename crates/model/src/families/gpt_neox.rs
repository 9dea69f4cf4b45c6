//! GPT-NeoX and Pythia: layer norms, attention and MLP beside each other with norms of their own, partial rotation.
//!
//! Source: mlx-lm `models/gpt_neox.py`.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let dims = dims.with_layer_norm(cfg.req("layer_norm_eps")?, true);
    let rotated = (cfg.req::<f32>("rotary_pct")? * dims.head_dim as f32) as usize;
    let rope = Rope::new(rotated, cfg.req("rotary_emb_base")?);
    let attention = Attention::new(&dims, Position::Rope(rope)).with_bias(true);
    let mlp = PlainMlp {
        width: cfg.or("intermediate_size", 4 * dims.hidden)?,
        act: Activation::GeluTanh,
        bias: true,
    };
    let (mixer, before_mlp) = ("input_layernorm", "post_attention_layernorm");
    let norms = match cfg.or("use_parallel_residual", true)? {
        true => NormPlacement::ParallelPair { mixer, mlp: before_mlp },
        false => NormPlacement::Pre { mixer, mlp: before_mlp },
    };
    let qkv = "model.layers.*.self_attn.query_key_value";
    let rewrites = [
        ["bias", "masked_bias", "rotary_emb.inv_freq"]
            .map(|name| drop(&format!("**.attention.{name}")))
            .into(),
        vec![prefix("gpt_neox", "model"), prefix("model.h", "model.layers")],
        modules([
            ("embed_out", "lm_head"),
            ("model.embed_out", "lm_head"),
            ("model.embed_in", "model.embed_tokens"),
            ("model.final_layer_norm", "model.norm"),
        ]),
        parts_of_layers([
            ("attention.query_key_value", "self_attn.query_key_value"),
            ("attention.dense", "self_attn.o_proj"),
            ("mlp.dense_h_to_4h", "mlp.up_proj"),
            ("mlp.dense_4h_to_h", "mlp.down_proj"),
        ]),
        vec![ungrouped(qkv, &attention), split_qkv(qkv, &attention)],
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(norms);
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
