//! Phi-3 small: heads that see blocks of keys in some layers, a clipped gate, scales of maximal update parametrization.
//!
//! Source: mlx-lm `models/phi3small.py`.

use super::names::*;
use crate::*;

/// Token ids that are never sampled: placeholders of the tokenizer.
const PLACEHOLDERS: [std::ops::Range<usize>; 4] =
    [100_256..100_257, 100_258..100_261, 100_264..100_266, 100_267..100_352];

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Tied, ..Dims::read(cfg)? };
    let dims = dims.with_layer_norm(cfg.req("layer_norm_epsilon")?, true);
    let head_dim = dims.head_dim as f32;
    let scale = match cfg.or("mup_use_scaling", true)? {
        true => cfg.or("mup_attn_multiplier", 1.0)? / head_dim,
        false => head_dim.powf(-0.5),
    };
    let factor = cfg.or::<f32>("rope_position_scale", 1.0)?;
    let base = cfg.or("rope_embedding_base", 1_000_000.0)?;
    let rope = Rope { scaling: Scaling::Linear { factor: 1.0 / factor }, ..Rope::new(dims.head_dim, base) };
    let dense = Attention { scale, ..Attention::new(&dims, Position::Rope(rope)).with_bias(true) };
    let blocks = BlockSparse {
        size: cfg.or("blocksparse_block_size", 64)?,
        local: cfg.or("blocksparse_num_local_blocks", 16)?,
        stride: cfg.or("blocksparse_vert_stride", 8)?,
    };
    let sparse = Attention { block_sparse: Some(blocks), ..dense.clone() };
    let width = cfg.req("ff_intermediate_size")?;
    let act = Activation::ClippedSwiglu { alpha: 1.702, limit: cfg.req("gegelu_limit")? };
    let mlp = GatedMlp { width, act, bias: true };
    let period: usize = cfg.req("dense_attention_every_n_layers")?;
    let layer = |index: usize| {
        let attention = if index.is_multiple_of(period) { &sparse } else { &dense };
        LayerSpec::pre_norm(attention.clone(), mlp, dims.norm)
    };
    let rewrites = [
        modules([("model.final_layernorm", "model.norm")]),
        parts_of_layers([("self_attn.dense", "self_attn.o_proj"), ("mlp.up_proj", "mlp.gate_up_proj")]),
        vec![
            ungrouped("model.layers.*.self_attn.query_key_value", &dense),
            split_qkv("model.layers.*.self_attn.query_key_value", &dense),
            WeightRewrite::Deinterleave {
                from: "model.layers.*.mlp.gate_up_proj.*".into(),
                to: ["gate", "up"].map(|part| format!("model.layers.*.mlp.{part}_proj.*").into()).into(),
            },
            drop("**.rotary_emb.inv_freq"),
        ],
    ];
    let never = PLACEHOLDERS.into_iter().flatten().filter(|token| *token < dims.vocab).collect();
    Ok(Blueprint {
        embed_scale: cfg.opt("mup_embedding_multiplier")?.filter(|scale| *scale != 0.0).unwrap_or(1.0),
        logit_scale: cfg
            .opt("mup_width_multiplier")?
            .filter(|scale| *scale != 0.0)
            .map_or(1.0, |width: f32| 1.0 / width),
        never_sampled: never,
        rewrites: rewrites.concat(),
        ..Blueprint::new(&dims, (0..dims.layers).map(layer).collect())
    })
}
