//! MiMo-V2-Flash: values narrower than keys and scaled, sinks in layers with a window, sigmoid routing.
//!
//! Source: mlx-lm `models/mimo_v2_flash.py`.

use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("scoring_func", "sigmoid")?;
    cfg.only("topk_method", "noaux_tc")?;
    let fields = DimFields { norm_eps: "layernorm_epsilon", ..DimFields::LLAMA };
    let dims = Dims { head: Head::Own, ..Dims::read_as(cfg, &fields)? };
    let partial: f32 = cfg.req("partial_rotary_factor")?;
    let value_scale = cfg.or("attention_value_scale", 1.0)?;
    let attention = |dims: &Dims, v_head_dim, base, sink_logits, span| {
        let rope = Rope::new((partial * dims.head_dim as f32) as usize, base);
        Attention { v_head_dim, span, sink_logits, value_scale, ..Attention::new(dims, Position::Rope(rope)) }
    };
    let full = attention(
        &dims,
        cfg.req("v_head_dim")?,
        cfg.req("rope_theta")?,
        cfg.req("add_full_attention_sink_bias")?,
        AttentionSpan::Full,
    );
    let of_windows = Dims {
        heads: cfg.req("swa_num_attention_heads")?,
        kv_heads: cfg.req("swa_num_key_value_heads")?,
        head_dim: cfg.req("swa_head_dim")?,
        ..dims
    };
    let sliding = attention(
        &of_windows,
        cfg.req("swa_v_head_dim")?,
        cfg.req("swa_rope_theta")?,
        cfg.req("add_swa_attention_sink_bias")?,
        AttentionSpan::Window(cfg.req("sliding_window_size")?),
    );
    let dense = GatedMlp::read(cfg)?;
    let moe = deepseek_moe(cfg, dense, Router::SIGMOID_CORRECTED)?;
    let kinds: (Vec<usize>, Vec<usize>) = (cfg.req("hybrid_layer_pattern")?, cfg.req("moe_layer_freq")?);
    if [kinds.0.len(), kinds.1.len()] != [dims.layers; 2] {
        let rule = "`hybrid_layer_pattern` and `moe_layer_freq` name every layer".to_owned();
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    let layer = |(slides, is_routed): (usize, usize)| {
        let attention = if slides == 1 { &sliding } else { &full };
        let mlp: Mlp = match &moe {
            Some(moe) if is_routed == 1 => moe.clone().into(),
            _ => dense.into(),
        };
        LayerSpec::pre_norm(attention.clone(), mlp, dims.norm)
    };
    let sinks = super::names::tensors_of_layers([("self_attn.attention_sink_bias", "self_attn.sinks")]);
    let mtp = vec![super::names::drop("model.mtp.**")];
    Ok(Blueprint {
        rewrites: [mtp, sinks, routed_rewrites(dims.layers, moe.as_ref())].concat(),
        ..Blueprint::new(&dims, kinds.0.into_iter().zip(kinds.1).map(layer).collect())
    })
}
