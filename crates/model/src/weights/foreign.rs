//! Tensors of other libraries' formats become MLX's: packed where MLX has the same numbers, else floats.
//!
//! Invariant: lazy, module by module, under the published names; rewrites come after. Tensors that are MLX's already
//! stay as they are.

mod blocks;
mod bytes;
mod codes;
mod integers;
mod module;
mod stacks;
mod ternary;

use mlx::Dtype;

use crate::quantization::{Foreign, Quantization};
use crate::weights::{LoadError, Weights};
use module::Modules;

/// Tensors that say how activations are packed, which are computed in floats here.
const OF_ACTIVATIONS: &[&str] = &[
    "input_scale",
    "activation_scale",
    "input_global_scale",
    "input_zero_point",
    "output_scale",
    "k_scale",
    "v_scale",
    "input_scale_ub",
];

/// Weights as MLX stores them, with the packing of each module in `quantization`.
pub(crate) fn convert(weights: Weights, quantization: &mut Quantization) -> Result<Weights, LoadError> {
    let Some(format) = quantization.foreign.or_else(|| implied(&weights)) else { return Ok(weights) };
    let mut modules = Modules::new(weights, quantization);
    match format {
        Foreign::Awq => integers::convert_awq(&mut modules)?,
        Foreign::Gptq { bits, zeros } => integers::convert_gptq(&mut modules, bits, zeros)?,
        Foreign::CompressedTensors { bits } => {
            integers::convert_compressed(&mut modules, bits)?;
            bytes::convert(&mut modules, [128, 128])?;
        }
        Foreign::Fp8 { block } => bytes::convert(&mut modules, block)?,
        Foreign::ModelOpt => {
            stacks::convert(&mut modules)?;
            bytes::convert(&mut modules, [128, 128])?;
        }
        Foreign::Mxfp4 => blocks::convert(&mut modules)?,
        Foreign::Bitnet { scale } => ternary::convert(&mut modules, scale)?,
    }
    let mut weights = modules.into_weights();
    weights.retain(|name, _| !OF_ACTIVATIONS.contains(&name.rsplit('.').next().unwrap_or(name)));
    Ok(weights)
}

/// What the tensors are when the config does not say.
fn implied(weights: &Weights) -> Option<Foreign> {
    let of_bytes = |name: &str| {
        let path = name.rsplit_once('.').map_or("", |(path, _)| path);
        let weight = weights.get(&format!("{path}.weight"));
        weight.is_some_and(|weight| weight.dtype().is_ok_and(|dtype| dtype == Dtype::U8))
    };
    Foreign::implied(weights.keys().map(String::as_str).filter(|name| of_bytes(name)))
}
