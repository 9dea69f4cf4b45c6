//! Weights of one byte per element: E4M3 or integers, with scales of blocks, rows or whole tensors.

use mlx::{Array, Dtype, QuantMode, Quantized};

use super::integers::two_level_floats;
use super::module::{Integers, Modules, refused};
use crate::weights::LoadError;

/// Modules whose `weight` is of bytes beside a `weight_scale_inv` or a `weight_scale`. `block`: outputs and inputs of a
/// scale, where there are several of both.
pub(super) fn convert(modules: &mut Modules, block: [i32; 2]) -> Result<(), LoadError> {
    for part in ["weight_scale_inv", "weight_scale"] {
        for path in modules.with(part) {
            let is_bytes = |weight: &Array| weight.dtype().is_ok_and(|dtype| dtype.size_of() == 1);
            if !modules.get(&path, "weight").is_some_and(is_bytes) {
                return Err(refused(&path, format!("has a `{part}` but no `weight` of bytes")));
            }
            let (weight, scale) = (modules.need(&path, "weight")?, modules.need(&path, part)?);
            match (weight.dtype()?, scale.dtype()?) {
                (Dtype::I8, _) => convert_integers(modules, &path, &weight, scale)?,
                (_, Dtype::U8) if modules.get(&path, "weight_scale_2").is_some() => {
                    let factor = modules.need(&path, "weight_scale_2")?;
                    let floats = two_level_floats(weight.view(Dtype::U32)?, scale, &factor)?;
                    modules.put(&path, "weight", floats);
                }
                (_, Dtype::U8) => convert_exponents(modules, &path, &weight, &scale)?,
                _ => {
                    let scale = spread(&path, scale, weight.shape(), block)?;
                    let floats = weight.from_fp8(Dtype::Bf16)? * scale;
                    modules.put(&path, "weight", floats.astype(Dtype::Bf16)?);
                }
            }
        }
    }
    Ok(())
}

/// A scale for each element, or one shape that is broadcast to it.
fn spread(path: &str, scale: Array, weight: &[i32], block: [i32; 2]) -> Result<Array, LoadError> {
    let &[.., outputs, inputs] = weight else {
        return Err(refused(path, format!("has a weight of shape {weight:?}, not a matrix")));
    };
    if scale.size() == 1 {
        return Ok(scale.reshape(&[1, 1])?);
    }
    match *scale.shape() {
        [rows] if rows == outputs => Ok(scale.expand_dims(&[-1])?),
        [.., rows, 1] if rows == outputs => Ok(scale),
        [.., rows, columns] if rows == blocks(outputs, block[0]) && columns == blocks(inputs, block[1]) => {
            let spread = scale.repeat(block[0], -2)?.repeat(block[1], -1)?;
            Ok(first(&first(&spread, outputs, -2)?, inputs, -1)?)
        }
        ref other => Err(refused(
            path,
            format!(
                "has scales {other:?} for a weight {weight:?}; blocks of {block:?} or one for each row fit"
            ),
        )),
    }
}

/// The first `count` of an axis that has more.
fn first(tensor: &Array, count: i32, axis: i32) -> mlx::Result<Array> {
    let parts = tensor.split(&[count], axis)?;
    parts.into_iter().next().ok_or_else(|| mlx::Error::new("a split has a first part"))
}

fn blocks(length: i32, block: i32) -> i32 {
    length.div_euclid(block) + i32::from(length.rem_euclid(block) > 0)
}

/// Scales that are powers of two, given by their exponents: MLX's mxfp8, whose scales are of one output and 32 inputs.
fn convert_exponents(
    modules: &mut Modules,
    path: &str,
    weight: &Array,
    scale: &Array,
) -> Result<(), LoadError> {
    let (&[.., outputs, inputs], &[.., rows, columns]) = (weight.shape(), scale.shape()) else {
        return Err(refused(path, format!("has scales {:?}, not a matrix", scale.shape())));
    };
    let groups = inputs / 32;
    if inputs % 32 != 0 || rows < 1 || columns < 1 || groups % columns != 0 {
        return Err(refused(path, format!("has scales {:?} for {:?}", scale.shape(), weight.shape())));
    }
    let tile = blocks(outputs, rows);
    let scales = scale.repeat(tile, -2)?.repeat(groups / columns, -1)?;
    let scales = first(&scales, outputs, -2)?.contiguous()?;
    let weight = weight.view(Dtype::U32)?;
    let packed = Quantized { weight, scales, biases: None, group: 32, bits: 8, mode: QuantMode::Mxfp8 };
    modules.put_packed(path, packed);
    Ok(())
}

/// Signed integers with a scale for each row: MLX's affine integers with a bias of −128 scales.
fn convert_integers(
    modules: &mut Modules,
    path: &str,
    weight: &Array,
    scale: Array,
) -> Result<(), LoadError> {
    let [outputs, inputs] = weight.dims()?;
    let rows = if scale.size() == 1 { scale.reshape(&[1, 1])? } else { scale.reshape(&[-1, 1])? };
    if rows.dim(0)? != outputs && rows.dim(0)? != 1 || inputs % 32 != 0 {
        return Err(refused(path, format!("has {} scales for {outputs} rows", rows.dim(0)?)));
    }
    let scales = rows.broadcast_to(&[outputs, 1])?;
    let codes = (weight.astype(Dtype::I32)? + 128.0).astype(Dtype::U8)?;
    let integers = Integers::new(codes.view(Dtype::U32)?, scales, &Array::scalar(128.0, Dtype::F32)?, 8)?;
    modules.put_integers(path, integers)
}
