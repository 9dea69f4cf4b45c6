//! What differs from layer to layer, as configs list it: kinds, spans, numbers, rotations.

use std::num::NonZeroUsize;

use super::parts::missing;
use crate::config::Field;
use crate::*;

/// The attention span of each layer: `layer_types` with `sliding_window`, else one span for all of them.
pub(super) fn layer_spans(cfg: &Config, layers: usize) -> Result<Vec<AttentionSpan>, ConfigError> {
    let window = cfg.opt::<NonZeroUsize>("sliding_window")?.map(NonZeroUsize::get);
    let Some(kinds) = cfg.opt::<Vec<String>>("layer_types")? else {
        return Ok(vec![window.map_or(AttentionSpan::Full, AttentionSpan::Window); layers]);
    };
    if kinds.len() != layers {
        let rule =
            format!("`layer_types` ({}) names every layer (`num_hidden_layers`: {layers})", kinds.len());
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    let span = |kind: &String| match (kind.as_str(), window) {
        ("full_attention", _) => Ok(AttentionSpan::Full),
        ("sliding_attention", Some(window)) => Ok(AttentionSpan::Window(window)),
        ("sliding_attention", None) => Err(ConfigError::Missing { field: "sliding_window".to_owned() }),
        _ => Err(ConfigError::Unsupported {
            field: "layer_types".to_owned(),
            found: kind.clone(),
            supported: "full_attention, sliding_attention".to_owned(),
        }),
    };
    kinds.iter().map(span).collect()
}

/// Layers by `layer_types`; without it, the last of each period sees everything.
pub(super) fn by_kind_or_every(
    cfg: &Config,
    period: usize,
    layers: usize,
    [full, sliding]: [LayerSpec; 2],
) -> Result<Vec<LayerSpec>, ConfigError> {
    match cfg.opt::<Vec<String>>("layer_types")? {
        Some(kinds) => by_kind(&kinds, layers, full, sliding),
        None => Ok(every(period, layers, full, sliding)),
    }
}

/// An entry of each layer: a list of them, or one for all. An empty list counts as absent.
pub(super) fn per_layer<T: Field + Clone>(
    cfg: &Config,
    field: &str,
    layers: usize,
) -> Result<Option<Vec<T>>, ConfigError> {
    if let Ok(one) = cfg.opt::<T>(field) {
        return Ok(one.map(|one| vec![one; layers]));
    }
    let each: Vec<T> = cfg.req(field)?;
    if each.is_empty() || each.len() == layers {
        return Ok(Some(each).filter(|each| !each.is_empty()));
    }
    let rule = format!("`{field}` ({}) has an entry for each layer ({layers})", each.len());
    Err(ConfigError::Inconsistent { rules: vec![rule] })
}

/// An entry of each layer, from a field that the config must have.
pub(super) fn each_layer<T: Field + Clone>(
    cfg: &Config,
    field: &str,
    layers: usize,
) -> Result<Vec<T>, ConfigError> {
    per_layer(cfg, field, layers)?.ok_or_else(|| missing(field))
}

/// An entry of each layer, with an entry for all where the field is absent.
pub(super) fn per_layer_or<T: Field + Clone>(
    cfg: &Config,
    field: &str,
    layers: usize,
    absent: T,
) -> Result<Vec<T>, ConfigError> {
    Ok(per_layer(cfg, field, layers)?.unwrap_or_else(|| vec![absent; layers]))
}

/// Layers, or what they have, of which every `period`-th differs, the last of each period.
pub(super) fn every<T: Clone>(period: usize, layers: usize, last: T, other: T) -> Vec<T> {
    let layer = |index: usize| if index.is_multiple_of(period) { last.clone() } else { other.clone() };
    (1..=layers).map(layer).collect()
}

/// Layers as `layer_types` names them: with full attention, or with a window.
pub(super) fn by_kind(
    kinds: &[String],
    layers: usize,
    full: LayerSpec,
    sliding: LayerSpec,
) -> Result<Vec<LayerSpec>, ConfigError> {
    let of_kinds = [("full_attention", full), ("sliding_attention", sliding)];
    named_layers("layer_types", kinds, layers, &of_kinds)
}

/// Layers that a field names, each of one of these kinds.
pub(super) fn named_layers(
    field: &str,
    named: &[String],
    layers: usize,
    kinds: &[(&str, LayerSpec)],
) -> Result<Vec<LayerSpec>, ConfigError> {
    if named.len() != layers {
        let rule = format!("`{field}` ({}) names every layer (`num_hidden_layers`: {layers})", named.len());
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    let of_kind = |name: &String| match kinds.iter().find(|(kind, _)| kind == name) {
        Some((_, layer)) => Ok(layer.clone()),
        None => Err(ConfigError::Unsupported {
            field: field.to_owned(),
            found: name.clone(),
            supported: kinds.iter().map(|(kind, _)| *kind).collect::<Vec<_>>().join(", "),
        }),
    };
    named.iter().map(of_kind).collect()
}

/// The rotations of layers with full attention and of those with a window, as `rope_parameters` has them by kind.
pub(super) fn rope_by_kind(cfg: &Config, head_dim: usize) -> Result<[Rope; 2], ConfigError> {
    rope_by_kind_if_any(cfg, [head_dim; 2])?.ok_or_else(|| missing("rope_parameters.full_attention"))
}

/// Rotations by kind of layer, for heads of two widths, if the config has them by kind.
pub(super) fn rope_by_kind_if_any(
    cfg: &Config,
    [full, sliding]: [usize; 2],
) -> Result<Option<[Rope; 2]>, ConfigError> {
    let Some(parameters) = cfg.section("rope_parameters")? else { return Ok(None) };
    let Some(of_full) = parameters.section("full_attention")? else { return Ok(None) };
    let of_sliding = parameters.section("sliding_attention")?;
    let of_sliding = of_sliding.ok_or_else(|| missing("rope_parameters.sliding_attention"))?;
    let rope = |section, head_dim| Rope::read_section(section, cfg, head_dim);
    Ok(Some([rope(&of_full, full)?, rope(&of_sliding, sliding)?]))
}

/// Which layer's keys a layer reads, if not its own: the first `writers` layers have keys, and later ones read those of the
/// last writer with their span.
pub(super) fn shared_keys(spans: &[AttentionSpan], writers: usize, layer: usize) -> Option<KeySource> {
    let source = (0..writers).rev().find(|writer| spans.get(*writer) == spans.get(layer));
    source.filter(|_| layer >= writers).map(KeySource::Layer)
}

/// Layers as `layer_types` names them, each of one of these kinds.
pub(super) fn layers_of_kinds(
    cfg: &Config,
    layers: usize,
    kinds: &[(&str, LayerSpec)],
) -> Result<Option<Vec<LayerSpec>>, ConfigError> {
    let named = cfg.opt::<Vec<String>>("layer_types")?;
    named.map(|named| named_layers("layer_types", &named, layers, kinds)).transpose()
}
