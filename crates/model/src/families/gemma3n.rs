//! Gemma 3n: a stream of several copies, of which each layer computes one; embeddings of each layer's own, sparse
//! activations, last layers that read earlier ones' keys; tokens that are embedded as pictures and sound are.
//!
//! Source: mlx-lm `models/gemma3n.py`; transformers `models/gemma3n/modeling_gemma3n.py` for those tokens.

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
        vocab: Some(text.req("vocab_size_per_layer_input")?),
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
        media_vocabularies: media_vocabularies(cfg)?,
        stream: StreamKind::Alternating(updates),
        logit_softcap: text.opt("final_logit_softcapping")?,
        rewrites: [media_tensors(), text_model(), unread_keys(writers..dims.layers)].concat(),
        ..Blueprint::new(&dims, spans.iter().zip(mlps).enumerate().map(layer).collect())
    })
}

/// Media, and the defaults of their tokens: the first, how many, and the table's width.
const MEDIA: [(&str, [usize; 3]); 2] = [("vision", [262_144, 128, 2048]), ("audio", [262_272, 128, 1536])];

fn media_vocabularies(cfg: &Config) -> Result<Vec<MediaVocabulary>, ConfigError> {
    let mut vocabularies = Vec::new();
    for (medium, [first, count, width]) in MEDIA {
        let Some(section) = cfg.section(&format!("{medium}_config"))? else { continue };
        vocabularies.push(MediaVocabulary {
            path: format!("{medium}_vocabulary"),
            first: section.or("vocab_offset", first)?,
            count: section.or("vocab_size", count)?,
            width: section.or("hidden_size", width)?,
            norm_eps: section.or("rms_norm_eps", 1e-6)?,
        });
    }
    Ok(vocabularies)
}

/// Tensors of media vocabularies, beside those of encoders.
fn media_tensors() -> Vec<WeightRewrite> {
    let parts =
        [("embedding", "embedding"), ("hard_embedding_norm", "norm"), ("embedding_projection", "projection")];
    let of_part = |medium: &str, (from, to): (&str, &str)| {
        ["model.", ""].map(|parent| WeightRewrite::Rename {
            from: format!("{parent}embed_{medium}.{from}.*").into(),
            to: format!("model.{medium}_vocabulary.{to}.*").into(),
        })
    };
    MEDIA.iter().flat_map(|(medium, _)| parts.into_iter().flat_map(|part| of_part(medium, part))).collect()
}

/// Of layers that see everything, and of those with a window.
fn attentions(cfg: &Config, dims: &Dims) -> Result<(Attention, Attention), ConfigError> {
    let eps = dims.norm.eps();
    let of = |rope: Rope| Attention {
        scale: 1.0,
        qk_norm: Some(QkNorm::per_head(eps)),
        value_norm: Some(eps),
        ..Attention::new(dims, Position::Rope(rope))
    };
    let span = AttentionSpan::Window(cfg.req("sliding_window")?);
    let [full, sliding] = match rope_by_kind_if_any(cfg, [dims.head_dim; 2])? {
        Some(ropes) => ropes,
        None => {
            let bases = [cfg.req("rope_theta")?, cfg.req("rope_local_base_freq")?];
            bases.map(|base| Rope::new(dims.head_dim, base))
        }
    };
    Ok((of(full), Attention { span, ..of(sliding) }))
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
