//! Spark 2.5: windows in three layers of four, a gate on each head, a rotation for each kind of layer.
//!
//! Source: mlx-lm `models/spark2_5.py`.

use super::by_layer::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("hidden_act", "gelu")?;
    cfg.only("gate_attn_act_mode", "sigmoid")?;
    cfg.only("headwise_attn_output_gate", true)?;
    cfg.only("attention_bias", false)?;
    let dims = Dims::read(cfg)?;
    let [full, sliding] = rope_by_kind(cfg, dims.head_dim)?;
    let global = Attention {
        out_gate: Some(OutputGate::PerHead(HeadGate::Sigmoid)),
        ..Attention::new(&dims, Position::Rope(full))
    };
    let local = Attention {
        span: AttentionSpan::Window(cfg.req("sliding_window")?),
        position: Position::Rope(sliding),
        ..global.clone()
    };
    let width = cfg.req("intermediate_size")?;
    let mlp = GatedMlp { width, act: Activation::Gelu, bias: cfg.or("mlp_bias", false)? };
    let layer = |attention: &Attention| LayerSpec::pre_norm(attention.clone(), mlp, dims.norm);
    let layers = by_kind_or_every(cfg, 4, dims.layers, [layer(&global), layer(&local)])?;
    let rewrites = [
        modules([("model.embedding", "model.embed_tokens")]),
        parts_of_layers([
            ("self_attn.g_proj", "self_attn.gate_proj"),
            ("self_attn.out_proj", "self_attn.o_proj"),
        ]),
        vec![drop("**.rotary_emb.inv_freq"), split_qkv("model.layers.*.self_attn.q_k_v_proj", &global)],
    ];
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers) })
}
