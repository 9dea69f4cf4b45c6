//! Layers that see a window, and those that see everything.

use serde_json::{Value, json};

use super::needed;
use crate::error::Problem;
use crate::fields::short;
use crate::sizes::{Keys, Sizes};

pub(super) fn gemma2(keys: Keys, sizes: &Sizes) -> Result<Value, Problem> {
    Ok(json!({
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": keys.count("attention.sliding_window")?.unwrap_or(4096),
        "attn_logit_softcapping": keys.number("attn_logit_softcapping")?.unwrap_or(50.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping")?.unwrap_or(30.0),
        "query_pre_attn_scalar": query_scalar(sizes, 46),
    }))
}

pub(super) fn gemma3(keys: Keys, sizes: &Sizes) -> Result<Value, Problem> {
    Ok(json!({
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": keys.size("attention.sliding_window")?,
        "sliding_window_pattern": 6,
        "rope_local_base_freq": keys.number("rope.freq_base_swa")?.map_or(10_000.0, short),
        "query_pre_attn_scalar": query_scalar(sizes, 62),
    }))
}

/// What Gemma's scores are divided by the square root of. Its models of 27 billion parameters, which have `large` layers,
/// take the stream's width by head; files do not say.
///
/// Source: llama.cpp `src/models/gemma2.cpp`, `gemma3.cpp`.
fn query_scalar(sizes: &Sizes, large: usize) -> usize {
    if sizes.layers == large { sizes.hidden / sizes.heads } else { sizes.head_dim }
}

pub(super) fn cohere2(keys: Keys, sizes: &Sizes) -> Result<Value, Problem> {
    Ok(json!({
        "logit_scale": short(needed(keys, "logit_scale")?),
        "sliding_window": keys.size("attention.sliding_window")?,
        "sliding_window_pattern": window_period(keys, sizes)?,
    }))
}

/// A letter for each layer, as EXAONE's configs have them.
pub(super) fn exaone4(keys: Keys, sizes: &Sizes) -> Result<Value, Problem> {
    let Some(window) = keys.count("attention.sliding_window")?.filter(|window| *window > 0) else {
        return Ok(json!({}));
    };
    let letters = windows(keys, sizes)?.into_iter().map(|window| if window { 'L' } else { 'G' });
    Ok(json!({ "sliding_window": window, "sliding_window_pattern": letters.collect::<String>() }))
}

/// Which layers have a window, where the file says it layer by layer or by a period.
fn windows(keys: Keys, sizes: &Sizes) -> Result<Vec<bool>, Problem> {
    const NAME: &str = "attention.sliding_window_pattern";
    /// Where files do not say, every fourth layer has none, as in llama.cpp.
    const PERIOD: usize = 4;
    let every = |period: usize| (1..=sizes.layers).map(|layer| !layer.is_multiple_of(period)).collect();
    match keys.counts(NAME)?.as_deref() {
        None => Ok(every(PERIOD)),
        Some([period]) if *period > 0 && sizes.layers > 1 => Ok(every(*period)),
        Some(layers) if layers.len() >= sizes.layers => {
            Ok(layers.iter().take(sizes.layers).map(|window| *window != 0).collect())
        }
        Some(layers) => Err(Problem::broken(format!("`{}` is of {} layers", keys.key(NAME), layers.len()))),
    }
}

/// Every how many layers one has no window.
fn window_period(keys: Keys, sizes: &Sizes) -> Result<usize, Problem> {
    let windows = windows(keys, sizes)?;
    let period = windows.iter().position(|window| !window).map_or(sizes.layers + 1, |last| last + 1);
    let is_periodic = (1..).zip(&windows).all(|(layer, window)| (layer % period != 0) == *window);
    is_periodic
        .then_some(period)
        .ok_or_else(|| Problem::unsupported("windows that do not come in a period of layers".to_owned()))
}
