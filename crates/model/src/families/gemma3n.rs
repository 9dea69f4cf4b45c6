//! Gemma 3n, the text model: a stream of several copies, of which each layer computes one; embeddings of each layer's own,
//! sparse activations, last layers that read earlier ones' keys.
//!
//! Source: mlx-lm `models/gemma3n.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| missing("text_config"))?;
    let dims = Dims { head: Head::Tied, ..Dims::read(&text)? };
    let eps = dims.norm.eps();
    let updates = AlternatingUpdates {
        copies: text.req("altup_num_inputs")?,
        active: text.req("altup_active_idx")?,
        limit: text.req("altup_coef_clip")?,
        scales_output: text.req("altup_correct_scale")?,
        norm_eps: eps,
    };
    let own = PerLayerInputs {
        width: text.req("hidden_size_per_layer_input")?,
        vocab: text.req("vocab_size_per_layer_input")?,
        norm_eps: eps,
    };
    let finish = Finish::PerLayerInput { width: own.width, act: Activation::GeluTanh, norm_eps: eps };
    let spans = layer_spans(&text, dims.layers)?;
    let (full, sliding) = attentions(&text, &dims)?;
    let writers = dims.layers.saturating_sub(text.req("num_kv_shared_layers")?);
    let mlps = mlps(&text, dims.layers)?;
    let layer = |(index, (span, mlp)): (usize, (&AttentionSpan, GatedMlp))| {
        let attention = if *span == AttentionSpan::Full { &full } else { &sliding };
        let keys = shared_keys(&spans, writers, index).unwrap_or(KeySource::Own);
        let attention = Attention { keys, ..attention.clone() };
        LayerSpec {
            finish: vec![finish],
            ..LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(NormPlacement::GEMMA)
        }
    };
    let laurel: usize = text.req("laurel_rank")?;
    let layer = |at| LayerSpec { laurel: Some(laurel), ..layer(at) };
    Ok(Blueprint {
        embed_scale: (dims.hidden as f32).sqrt(),
        per_layer_inputs: Some(own),
        alternating: Some(updates),
        logit_softcap: text.opt("final_logit_softcapping")?,
        rewrites: [text_model(), unread_keys(writers..dims.layers)].concat(),
        ..Blueprint::new(&dims, spans.iter().zip(mlps).enumerate().map(layer).collect())
    })
}

/// Of layers that see everything, and of those with a window.
fn attentions(cfg: &Config, dims: &Dims) -> Result<(Attention, Attention), ConfigError> {
    let eps = dims.norm.eps();
    let of = |base| Attention {
        scale: 1.0,
        qk_norm: Some(QkNorm::per_head(eps)),
        value_norm: Some(eps),
        ..Attention::new(dims, Position::Rope(Rope::new(dims.head_dim, base)))
    };
    let span = AttentionSpan::Window(cfg.req("sliding_window")?);
    Ok((of(cfg.req("rope_theta")?), Attention { span, ..of(cfg.req("rope_local_base_freq")?) }))
}

/// The MLP of each layer; in some only the largest activations count.
fn mlps(cfg: &Config, layers: usize) -> Result<Vec<GatedMlp>, ConfigError> {
    let widths = each_layer(cfg, "intermediate_size", layers)?;
    let shares = per_layer_or(cfg, "activation_sparsity_pattern", layers, 0.0)?;
    let mlp = |(width, share): (usize, f32)| match share {
        share if share > 0.0 => GatedMlp::new(width, Activation::SparseGelu { share }),
        _ => GatedMlp::new(width, Activation::GeluTanh),
    };
    Ok(widths.into_iter().zip(shares).map(mlp).collect())
}
