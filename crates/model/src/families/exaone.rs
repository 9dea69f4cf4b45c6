//! EXAONE 3: Llama under GPT-2's names. EXAONE 4: norms after each part, and layers with windows that alone rotate.
//!
//! Source: mlx-lm `models/exaone.py`, `models/exaone4.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("activation_function", "silu")?;
    let fields = DimFields { layers: "num_layers", norm_eps: "layer_norm_epsilon", ..DimFields::LLAMA };
    let dims = Dims::read_as(cfg, &fields)?;
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?);
    let mlp = GatedMlp::read(cfg)?.with_bias(cfg.or("mlp_bias", false)?);
    let rewrites = [
        modules([("transformer.wte", "model.embed_tokens"), ("transformer.ln_f", "model.norm")]),
        vec![drop("**.rotary.inv_freq"), prefix("transformer.h", "model.layers")],
        parts_of_layers([
            ("ln_1", "input_layernorm"),
            ("ln_2", "post_attention_layernorm"),
            ("attn.attention.q_proj", "self_attn.q_proj"),
            ("attn.attention.k_proj", "self_attn.k_proj"),
            ("attn.attention.v_proj", "self_attn.v_proj"),
            ("attn.attention.out_proj", "self_attn.o_proj"),
            ("mlp.c_fc_0", "mlp.gate_proj"),
            ("mlp.c_fc_1", "mlp.up_proj"),
            ("mlp.c_proj", "mlp.down_proj"),
        ]),
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}

pub(super) fn read_exaone4(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_bias", false)?;
    let dims = Dims::read(cfg)?;
    let mlp = GatedMlp::read(cfg)?;
    let attention = local_and_global(cfg, &dims)?;
    let layer = |attention| LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(NormPlacement::OLMO2);
    Ok(Blueprint::new(&dims, attention.into_iter().map(layer).collect()))
}

/// The attention of each layer: `L` has a window and a rotation, `G` has neither; without a pattern all rotate.
pub(super) fn local_and_global(cfg: &Config, dims: &Dims) -> Result<Vec<Attention>, ConfigError> {
    let rotating = Attention {
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(dims, rope(cfg, dims)?)
    };
    let window: Option<usize> = cfg.opt("sliding_window")?;
    let Some(pattern) = cfg.opt::<String>("sliding_window_pattern")? else {
        return Ok(vec![rotating; dims.layers]);
    };
    let of_kind = |kind: char| match (kind, window) {
        ('L', Some(window)) => Ok(Attention { span: AttentionSpan::Window(window), ..rotating.clone() }),
        ('G', _) => Ok(Attention { position: Position::None, ..rotating.clone() }),
        _ => Err(ConfigError::Unsupported {
            field: "sliding_window_pattern".to_owned(),
            found: pattern.clone(),
            supported: "L (with `sliding_window`) and G".to_owned(),
        }),
    };
    pattern.chars().cycle().take(dims.layers).map(of_kind).collect()
}
