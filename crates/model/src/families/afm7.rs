//! AFM 7: the last layers have queries alone and read the keys of the last layer before them, which are rounded.
//!
//! Source: mlx-lm `models/afm7.py`.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let fields = DimFields {
        hidden: "hidden_dim",
        layers: "num_layers",
        heads: "num_heads",
        kv_heads: "num_kv_heads",
        ..DimFields::LLAMA
    };
    let dims = Dims { head: Head::Tied, ..Dims::read_as(cfg, &fields)? };
    let rope = Rope::new(dims.head_dim, cfg.or("rope_theta", 50_000.0)?).interleaved();
    // The norms on queries and keys have the epsilon of MLX's own.
    let own = Attention {
        qk_norm: Some(QkNorm::per_head(1e-5).after_rotation()),
        rounds_keys: true,
        ..Attention::new(&dims, Position::Rope(rope))
    };
    let readers: usize = cfg.req("num_kv_reuse_layers")?;
    let writers = dims.layers.saturating_sub(readers);
    let width = (dims.hidden as f32 * cfg.or("hidden_dim_scale_factor", 3.25)?) as usize;
    let mlp = GatedMlp { width, act: Activation::Silu, bias: false };
    let layer = |index: usize| {
        let keys = if index < writers { KeySource::Own } else { KeySource::Layer(writers.saturating_sub(1)) };
        LayerSpec::pre_norm(Attention { keys, ..own.clone() }, mlp, dims.norm)
    };
    let renumbered = |reader: usize| {
        prefix(&format!("model.kv_reuse_layers.{reader}"), &format!("model.layers.{}", writers + reader))
    };
    let rewrites = [
        modules([("model.embedding", "model.embed_tokens"), ("model.output_norm", "model.norm")]),
        (0..readers).map(renumbered).collect(),
        vec![split_qkv("model.layers.*.self_attn.qkv_proj", &own)],
        parts_of_layers([("self_attn.out_proj", "self_attn.o_proj")]),
    ];
    Ok(Blueprint {
        rewrites: rewrites.concat(),
        ..Blueprint::new(&dims, (0..dims.layers).map(layer).collect())
    })
}
