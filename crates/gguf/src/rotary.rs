//! How a rotation is scaled: metadata, or tensors with a factor for each pair.

use serde_json::{Map, Value, json};

use crate::error::Problem;
use crate::fields::{object, short};
use crate::metadata::required;
use crate::sizes::{Keys, Sizes};

/// Factors of pairs.
pub const FREQUENCIES: &str = "rope_freqs.weight";
/// Factors of pairs for long contexts.
pub const LONG: &str = "rope_factors_long.weight";
/// Factors of pairs for short contexts.
pub const SHORT: &str = "rope_factors_short.weight";
/// All tensors of this kind.
pub const TENSORS: [&str; 3] = [FREQUENCIES, LONG, SHORT];

/// The factors of a file.
#[derive(Debug, Default)]
pub struct RotaryTensors {
    /// [`FREQUENCIES`].
    pub frequencies: Option<Vec<f32>>,
    /// [`LONG`].
    pub long: Option<Vec<f32>>,
    /// [`SHORT`].
    pub short: Option<Vec<f32>>,
}

/// Adds what the config says of a rotation: how much of a head turns, and how it is scaled.
pub fn add_to(
    config: &mut Map<String, Value>,
    keys: Keys,
    sizes: &Sizes,
    tensors: &RotaryTensors,
) -> Result<(), Problem> {
    let dims = rotated(keys, sizes)?;
    if dims != sizes.head_dim {
        config.insert("partial_rotary_factor".to_owned(), Value::from(part(keys, sizes)?));
    }
    if let Some(scaling) = scaling(config, keys, dims, tensors)? {
        config.insert("rope_scaling".to_owned(), scaling);
    }
    Ok(())
}

/// How much of a head turns.
pub fn part(keys: Keys, sizes: &Sizes) -> Result<f64, Problem> {
    Ok(rotated(keys, sizes)? as f64 / sizes.head_dim as f64)
}

/// Elements of a head that turn.
fn rotated(keys: Keys, sizes: &Sizes) -> Result<usize, Problem> {
    const NAME: &str = "rope.dimension_count";
    let dims = keys.count(NAME)?.unwrap_or(sizes.head_dim);
    match dims {
        dims if dims > 0 && dims <= sizes.head_dim => Ok(dims),
        _ => Err(Problem::unsupported(format!("`{}` is {dims}", keys.key(NAME)))),
    }
}

fn scaling(
    config: &mut Map<String, Value>,
    keys: Keys,
    dims: usize,
    tensors: &RotaryTensors,
) -> Result<Option<Value>, Problem> {
    if let Some(frequencies) = &tensors.frequencies {
        return llama3(config, dims, frequencies);
    }
    let trained = keys.count("rope.scaling.original_context_length")?;
    if let (Some(long), Some(short)) = (&tensors.long, &tensors.short) {
        let trained = required(&keys.key("rope.scaling.original_context_length"), trained)?;
        config.insert("original_max_position_embeddings".to_owned(), Value::from(trained));
        return Ok(Some(json!({ "type": "longrope", "long_factor": long, "short_factor": short })));
    }
    let kind = keys.text("rope.scaling.type")?;
    let factor = keys.number("rope.scaling.factor")?.or(keys.number("rope.scale_linear")?);
    match (kind, factor) {
        (None | Some("none"), None) | (Some("none"), _) => Ok(None),
        (None | Some("linear"), Some(1.0)) => Ok(None),
        (None | Some("linear"), Some(factor)) => Ok(Some(json!({ "rope_type": "linear", "factor": factor }))),
        (Some("yarn"), Some(factor)) => {
            let trained = required(&keys.key("rope.scaling.original_context_length"), trained)?;
            let mut yarn = object(json!({
                "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained
            }));
            for name in ["beta_fast", "beta_slow"] {
                if let Some(beta) = keys.number(&format!("rope.scaling.yarn_{name}"))? {
                    yarn.insert(name.to_owned(), Value::from(short(beta)));
                }
            }
            Ok(Some(Value::Object(yarn)))
        }
        (Some(kind), _) => Err(Problem::unsupported(format!(
            "`{}` is {kind} (read are none, linear and yarn with a factor)",
            keys.key("rope.scaling.type")
        ))),
    }
}

/// Bands of Llama 3's wavelengths, which all its models share.
const BANDS: Bands = Bands { low: 1.0, high: 4.0, trained: 8192.0 };

struct Bands {
    low: f64,
    high: f64,
    trained: f64,
}

impl Bands {
    /// What a pair's wavelength is multiplied by.
    ///
    /// Source: llama.cpp `convert_hf_to_gguf.py`, `generate_extra_tensors`.
    fn factor(&self, wavelength: f64, factor: f64) -> f64 {
        if wavelength < self.trained / self.high {
            1.0
        } else if wavelength > self.trained / self.low {
            factor
        } else {
            let smooth = (self.trained / wavelength - self.low) / (self.high - self.low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    }
}

/// The scaling whose factors these are: the file has the factors alone.
fn llama3(config: &Map<String, Value>, dims: usize, frequencies: &[f32]) -> Result<Option<Value>, Problem> {
    let base = config.get("rope_theta").and_then(Value::as_f64).unwrap_or(10_000.0);
    let factor = frequencies.iter().copied().fold(1.0, f32::max);
    let expected = |pair: usize| {
        let wavelength = base.powf(2.0 * pair as f64 / dims as f64) * 2.0 * std::f64::consts::PI;
        BANDS.factor(wavelength, f64::from(factor))
    };
    let fits =
        |(pair, found): (usize, &f32)| (f64::from(*found) - expected(pair)).abs() <= 1e-3 * expected(pair);
    if frequencies.len() != dims / 2 || !frequencies.iter().enumerate().all(fits) {
        return Err(Problem::unsupported(format!("`{FREQUENCIES}` is not Llama 3's scaling of a rotation")));
    }
    let is_plain = factor == 1.0;
    Ok((!is_plain).then(|| {
        json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": BANDS.low, "high_freq_factor": BANDS.high,
            "original_max_position_embeddings": BANDS.trained as u64
        })
    }))
}
