//! Gemma 4: windows and full layers with heads of their own, norms on values, embeddings of each layer's own, last layers
//! that read earlier ones' keys, experts beside a dense MLP.
//!
//! Source: mlx-lm `models/gemma4_text.py`, `models/gemma4.py`.

use super::by_layer::*;
use super::gemma4_experts::*;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head_dim: cfg.or("head_dim", 256)?, ..Dims::read(cfg)? };
    let spans = spans(cfg, &dims)?;
    let (full, sliding) = attentions(cfg, &dims)?;
    let writers = dims.layers.saturating_sub(cfg.or("num_kv_shared_layers", 20)?);
    let wide = cfg.or("use_double_wide_mlp", true)?;
    let own = own_embeddings(cfg, dims.norm.eps())?;
    let layer = |(index, span): (usize, &AttentionSpan)| -> Result<LayerSpec, ConfigError> {
        let attention = if *span == AttentionSpan::Full { &full } else { &sliding };
        let keys = shared_keys(&spans, writers, index).unwrap_or(attention.keys);
        let mlp = GatedMlp { act: Activation::GeluTanh, ..GatedMlp::read(cfg)? };
        let doubled = wide && index >= writers && writers > 0;
        let mlp = mlp.with_width(mlp.width * if doubled { 2 } else { 1 });
        let embeddings = own.map(|own| Finish::PerLayerInput {
            width: own.width,
            act: Activation::GeluTanh,
            norm_eps: own.norm_eps,
        });
        let layer = layer(cfg, &dims, Attention { keys, ..attention.clone() }, mlp)?;
        Ok(LayerSpec { finish: embeddings.into_iter().chain([Finish::Scale]).collect(), ..layer })
    };
    let layers = spans.iter().enumerate().map(layer).collect::<Result<_, _>>()?;
    Ok(Blueprint {
        embed_scale: (dims.hidden as f32).sqrt(),
        per_layer_inputs: own,
        logit_softcap: cfg.opt("final_logit_softcapping")?,
        rewrites: [without_ranges(), expert_names(cfg, &dims)?, unread_keys(writers..dims.layers)].concat(),
        ..Blueprint::new(&dims, layers)
    })
}

/// Beside encoders of pictures and sound.
pub(super) fn read_with_encoder(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| missing("text_config"))?;
    let blueprint = read(&text)?;
    Ok(Blueprint { rewrites: [text_model(), blueprint.rewrites].concat(), ..blueprint })
}

fn spans(cfg: &Config, dims: &Dims) -> Result<Vec<AttentionSpan>, ConfigError> {
    let window = AttentionSpan::Window(cfg.or("sliding_window", 512)?);
    let period = cfg.or("sliding_window_pattern", 5)?;
    match cfg.opt::<Vec<String>>("layer_types")? {
        Some(_) => layer_spans(cfg, dims.layers),
        None => Ok(every(period, dims.layers, AttentionSpan::Full, window)),
    }
}

/// Of layers that see everything, and of those with a window.
fn attentions(cfg: &Config, dims: &Dims) -> Result<(Attention, Attention), ConfigError> {
    let eps = dims.norm.eps();
    let of = |dims: &Dims, rope: Rope| Attention {
        scale: 1.0,
        qk_norm: Some(QkNorm::per_head(eps)),
        value_norm: Some(eps),
        ..Attention::new(dims, Position::Rope(rope))
    };
    let head_dim = cfg.opt("global_head_dim")?.filter(|dim| *dim > 0).unwrap_or(dims.head_dim);
    let as_values = cfg.or("attention_k_eq_v", false)?;
    let kv_heads = cfg.opt("num_global_key_value_heads")?.filter(|_| as_values).unwrap_or(dims.kv_heads);
    let scaling = Scaling::Proportional { factor: 1.0, share: 0.25 };
    let absent = [Rope { scaling, ..Rope::new(head_dim, 1_000_000.0) }, Rope::new(dims.head_dim, 10_000.0)];
    let [global, local] = rope_by_kind_if_any(cfg, [head_dim, dims.head_dim])?.unwrap_or(absent);
    let keys = if as_values { KeySource::OwnAsValues } else { KeySource::Own };
    let full = Attention { keys, ..of(&Dims { head_dim, kv_heads, ..*dims }, global) };
    let span = AttentionSpan::Window(cfg.or("sliding_window", 512)?);
    let directions = cfg.choice_opt("use_bidirectional_attention", &[("vision", Bidirectional::Pictures)])?;
    let bidirectional = directions.unwrap_or(Bidirectional::No);
    Ok((full, Attention { span, bidirectional, ..of(dims, local) }))
}

/// Embeddings of each layer's own, in small models.
fn own_embeddings(cfg: &Config, norm_eps: f32) -> Result<Option<PerLayerInputs>, ConfigError> {
    let width = cfg.or("hidden_size_per_layer_input", 256)?;
    let vocab = cfg.or("vocab_size_per_layer_input", 262_144)?;
    Ok((width > 0).then_some(PerLayerInputs { width, vocab: Some(vocab), norm_eps }))
}

/// Ranges of activations, which only training on packed ones reads.
fn without_ranges() -> Vec<WeightRewrite> {
    let ranges =
        ["input_max", "input_min", "output_max", "output_min"].map(|name| drop(&format!("**.{name}")));
    [ranges.to_vec(), vec![drop("**.rotary_emb.inv_freq")]].concat()
}
