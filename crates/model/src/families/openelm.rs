//! OpenELM: Llama whose layers have different numbers of heads and widths.
//!
//! Source: mlx-lm `models/openelm.py`; arXiv 2404.14619 §2.1.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let heads: Vec<usize> = cfg.req("num_query_heads")?;
    let kv_heads: Vec<usize> = cfg.req("num_kv_heads")?;
    let multipliers: Vec<f32> = cfg.req("ffn_multipliers")?;
    let (hidden, head_dim) = (cfg.req("model_dim")?, cfg.req("head_dim")?);
    let layers = Dims::layers(cfg, "num_transformer_layers")?;
    if [heads.len(), kv_heads.len(), multipliers.len()] != [layers; 3] {
        let rule = "`num_query_heads`, `num_kv_heads` and `ffn_multipliers` name every layer".to_owned();
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    let tied = cfg.or("share_input_output_layers", true)?;
    let norm = Norm::Rms { eps: cfg.or("rms_norm_eps", 1e-6)? };
    let dims = Dims {
        hidden,
        layers,
        heads: 1,
        kv_heads: 1,
        head_dim,
        norm,
        vocab: cfg.req("vocab_size")?,
        context: cfg.or("max_context_length", 2048)?,
        head: if tied { Head::Tied } else { Head::Own },
    };
    let rope = Rope::new(head_dim, cfg.or("rope_freq_constant", 10_000.0)?);
    let normed = cfg.or("normalize_qk_projections", true)?;
    let divisor = cfg.req("ffn_dim_divisor")?;
    let layer = |index: usize| {
        let dims = Dims { heads: heads[index], kv_heads: kv_heads[index], ..dims };
        let attention = Attention {
            qk_norm: normed.then(|| QkNorm::per_head(norm.eps())),
            ..Attention::new(&dims, Position::Rope(rope.clone()))
        };
        let width = divisible(multipliers[index] * hidden as f32, divisor);
        LayerSpec::pre_norm(attention, GatedMlp { width, act: Activation::Silu, bias: false }, norm)
    };
    let layers: Vec<LayerSpec> = (0..layers).map(layer).collect();
    let mut rewrites = modules([("transformer.token_embeddings", "model.embed_tokens")]);
    rewrites.push(prefix("transformer", "model"));
    rewrites.extend(parts_of_layers([
        ("attn_norm", "input_layernorm"),
        ("ffn_norm", "post_attention_layernorm"),
        ("attn.out_proj", "self_attn.o_proj"),
        ("attn.*", "self_attn.*"),
        ("ffn.proj_1", "mlp.gate_up_proj"),
        ("ffn.proj_2", "mlp.down_proj"),
    ]));
    for (index, layer) in layers.iter().enumerate() {
        if let (Mixer::Attention(attention), Some(Mlp::Gated(mlp))) = (&layer.mixer, &layer.mlp) {
            rewrites.push(split_qkv(&format!("model.layers.{index}.self_attn.qkv_proj"), attention));
            rewrites.push(split_gate_up(&format!("model.layers.{index}.mlp.gate_up_proj"), mlp.width));
        }
    }
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, layers) })
}

/// The nearest multiple of `divisor` that is no more than a tenth below `size`.
fn divisible(size: f32, divisor: usize) -> usize {
    let divisor = divisor.max(1);
    let nearest = divisor.max((size + divisor as f32 / 2.0) as usize / divisor * divisor);
    if (nearest as f32) < 0.9 * size { nearest + divisor } else { nearest }
}
