//! Gemma 3, text only: five local layers to each global one, norms on both sides of everything.
//!
//! Source: mlx-lm `models/gemma3_text.py`; absent fields mean what they mean there.

use super::by_layer::*;
use super::encoder::encoder;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    blueprint(cfg, Dims { head: Head::OwnIfPresent, ..Dims::read(cfg)? })
}

/// Beside a picture encoder; sizes that the text model does not name are those of the 4B model.
pub(super) fn read_with_encoder(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let Some(text) = text_config(cfg)? else { return read(cfg) };
    let dims = Dims {
        hidden: text.req("hidden_size")?,
        layers: Dims::layers(&text, "num_hidden_layers")?,
        heads: text.or("num_attention_heads", 8)?,
        kv_heads: text.or("num_key_value_heads", 4)?,
        head_dim: text.or("head_dim", 256)?,
        vocab: text.opt("vocab_size")?.or(cfg.opt("vocab_size")?).unwrap_or(262_208),
        context: text.or("max_position_embeddings", 131_072)?,
        norm: Norm::Rms { eps: text.or("rms_norm_eps", 1e-6)? },
        head: Head::OwnIfPresent,
    };
    let mut blueprint = blueprint(&text, dims)?;
    blueprint.attend_to_later(Bidirectional::Pictures);
    Ok(Blueprint { rewrites: [text_model(), blueprint.rewrites].concat(), ..blueprint })
}

fn blueprint(cfg: &Config, dims: Dims) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_bias", false)?;
    for cap in ["attn_logit_softcapping", "final_logit_softcapping"] {
        cfg.only(cap, serde_json::Value::Null)?;
    }
    let act = cfg.choice_opt("hidden_activation", ACTIVATIONS)?.unwrap_or(Activation::GeluTanh);
    let mlp = GatedMlp { act, ..GatedMlp::read(cfg)? };
    let [global, local] = rotations(cfg, dims.head_dim)?;
    let global = Attention {
        scale: cfg.or::<f32>("query_pre_attn_scalar", 256.0)?.powf(-0.5),
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(&dims, Position::Rope(global))
    };
    // In both directions it is as wide as both sides together.
    let is_encoder = cfg.or("use_bidirectional_attention", false)?;
    let window = cfg.or("sliding_window", 512)?;
    let window = if is_encoder { window / 2 + 1 } else { window };
    let local =
        Attention { span: AttentionSpan::Window(window), position: Position::Rope(local), ..global.clone() };
    let layer = |attention: &Attention| {
        LayerSpec::pre_norm(attention.clone(), mlp, dims.norm).with_norms(NormPlacement::GEMMA)
    };
    let period = cfg.opt("sliding_window_pattern")?.or(cfg.opt("_sliding_window_pattern")?).unwrap_or(6);
    let layers = by_kind_or_every(cfg, period, dims.layers, [layer(&global), layer(&local)])?;
    let blueprint = Blueprint {
        embed_scale: rounded_to_bf16((dims.hidden as f32).sqrt()),
        rewrites: add_one_to_norms(When::Always).collect(),
        ..Blueprint::new(&dims, layers)
    };
    // Its reference scales in the dtype of the embeddings.
    let embed_scale = (dims.hidden as f32).sqrt();
    Ok(if is_encoder { encoder(Blueprint { embed_scale, ..blueprint }) } else { blueprint })
}

/// Of global layers and of local ones. Newer configs have them by the kind of layer.
fn rotations(cfg: &Config, head_dim: usize) -> Result<[Rope; 2], ConfigError> {
    if let Some(ropes) = rope_by_kind_if_any(cfg, [head_dim; 2])? {
        return Ok(ropes);
    }
    let base = cfg.opt("rope_theta")?.or(cfg.opt("rope_global_base_freq")?).unwrap_or(1_000_000.0);
    let global = Rope { base, ..Rope::read(cfg, head_dim)? };
    Ok([global, Rope::new(head_dim, cfg.or("rope_local_base_freq", 10_000.0)?)])
}
