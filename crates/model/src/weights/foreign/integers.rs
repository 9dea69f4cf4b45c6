//! AutoAWQ's, AutoGPTQ's and compressed-tensors' packed integers.

use mlx::{Array, Dtype, QuantMode, Quantized};

use super::codes::{pack, unpack};
use super::module::{Integers, Modules, refused};
use crate::quantization::ZeroPoints;
use crate::weights::LoadError;

const AWQ_BITS: i32 = 4;
/// Where AutoAWQ has the codes of eight outputs within a word.
const AWQ_ORDER: [i32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Modules with a `qweight` `[in, out · 4 / 32]`.
pub(super) fn convert_awq(modules: &mut Modules) -> Result<(), LoadError> {
    for path in modules.with("qweight") {
        let qweight = modules.need(&path, "qweight")?;
        let words = pack(&in_order(&qweight)?.t()?, AWQ_BITS)?;
        let scales = modules.need(&path, "scales")?.t()?;
        let zeros = match modules.take(&path, "qzeros") {
            Some(zeros) => in_order(&zeros)?.t()?,
            None => Array::scalar(8.0, Dtype::F32)?,
        };
        modules.put_integers(&path, Integers::new(words, scales, &zeros, AWQ_BITS)?)?;
    }
    Ok(())
}

/// The codes of AutoAWQ's words, each output in its place, float32.
fn in_order(words: &Array) -> mlx::Result<Array> {
    let codes = unpack(words, AWQ_BITS)?;
    let [rows, count] = codes.dims()?;
    let by_word = codes.reshape(&[rows, count / 8, 8])?;
    by_word.take(&Array::from_slice(&AWQ_ORDER, &[8])?, -1)?.reshape(&[rows, count])
}

/// Modules with a `qweight` `[in · bits / 32, out]`. Where `g_idx` mixes the groups of inputs, which MLX cannot, the
/// weights become floats.
pub(super) fn convert_gptq(modules: &mut Modules, bits: i32, zeros: ZeroPoints) -> Result<(), LoadError> {
    for path in modules.with("qweight") {
        let words = modules.need(&path, "qweight")?.view(Dtype::U32)?.t()?.contiguous()?;
        let scales = modules.need(&path, "scales")?.t()?;
        let zeros = unpack(&modules.need(&path, "qzeros")?, bits)?.t()?
            + match zeros {
                ZeroPoints::Whole => 0.0,
                ZeroPoints::LessOne => 1.0,
            };
        let integers = Integers::new(words, scales, &zeros, bits)?;
        match modules.take(&path, "g_idx") {
            Some(groups) if !in_sequence(&groups, integers.scales.dim(-1)?)? => {
                let weight = of_mixed_groups(&path, &integers, &groups)?;
                modules.put(&path, "weight", weight);
            }
            _ => modules.put_integers(&path, integers)?,
        }
    }
    Ok(())
}

/// Whether input `i` is in group `i / size`.
fn in_sequence(groups: &Array, count: i32) -> mlx::Result<bool> {
    let groups = groups.astype(Dtype::I32)?.to_vec::<i32>()?;
    let size = (groups.len() / count.max(1) as usize).max(1);
    Ok(groups.iter().enumerate().all(|(input, group)| *group as usize == input / size))
}

/// The floats of integers whose inputs are in these groups.
fn of_mixed_groups(path: &str, integers: &Integers, groups: &Array) -> Result<Array, LoadError> {
    let groups = groups.astype(Dtype::I32)?;
    let count = integers.scales.dim(-1)?;
    if groups.to_vec::<i32>()?.iter().any(|group| !(0..count).contains(group)) {
        return Err(refused(path, format!("has a `g_idx` beyond its {count} groups")));
    }
    let of_inputs = |tensor: &Array| tensor.astype(Dtype::F32)?.take(&groups, -1);
    let codes = unpack(&integers.words, integers.bits)?;
    let weight = codes * of_inputs(&integers.scales)? + of_inputs(&integers.biases)?;
    Ok(weight.astype(integers.scales.dtype()?)?)
}

/// Modules with a `weight_packed`: integers in words, or floats of 4 bits in bytes.
pub(super) fn convert_compressed(modules: &mut Modules, bits: i32) -> Result<(), LoadError> {
    for path in modules.with("weight_packed") {
        let packed = modules.need(&path, "weight_packed")?;
        let scales = modules.need(&path, "weight_scale")?;
        let shape = modules.take(&path, "weight_shape");
        if packed.dtype()? == Dtype::U8 {
            convert_floats(modules, &path, packed, scales)?;
            continue;
        }
        let words = packed.view(Dtype::U32)?;
        let bits = bits_of(&path, &words, shape.as_ref(), bits)?;
        let zeros = match modules.take(&path, "weight_zero_point") {
            Some(zeros) => unpack(&zeros.view(Dtype::U32)?.t()?.contiguous()?, bits)?.t()?,
            None => Array::scalar(2f32.powi(bits - 1), Dtype::F32)?,
        };
        let integers = Integers::new(words, scales, &zeros, bits)?;
        match modules.take(&path, "weight_g_idx") {
            Some(groups) if !in_sequence(&groups, integers.scales.dim(-1)?)? => {
                let weight = of_mixed_groups(&path, &integers, &groups)?;
                modules.put(&path, "weight", weight);
            }
            _ => modules.put_integers(&path, integers)?,
        }
    }
    Ok(())
}

/// Bits per element, from the shape before packing if it is stored.
fn bits_of(path: &str, words: &Array, shape: Option<&Array>, absent: i32) -> Result<i32, LoadError> {
    let Some(shape) = shape else { return Ok(absent) };
    let inputs = shape.astype(Dtype::I32)?.to_vec::<i32>()?.last().copied().unwrap_or(0).max(1);
    match words.dim(-1)?.saturating_mul(32) / inputs {
        bits @ (2 | 4 | 8) => Ok(bits),
        bits => Err(refused(path, format!("is packed with {bits} bits, not 2, 4 or 8"))),
    }
}

/// 4-bit floats: with power-of-two scales as MLX's mxfp4, with two levels of scales as floats.
fn convert_floats(modules: &mut Modules, path: &str, packed: Array, scales: Array) -> Result<(), LoadError> {
    let weight = packed.view(Dtype::U32)?;
    match modules.take(path, "weight_global_scale") {
        None => {
            let packed =
                Quantized { weight, scales, biases: None, group: 32, bits: 4, mode: QuantMode::Mxfp4 };
            modules.put_packed(path, packed);
        }
        Some(divisor) => {
            let factor = divisor.astype(Dtype::F32)?.reciprocal()?;
            modules.put(path, "weight", two_level_floats(weight, scales, &factor)?);
        }
    }
    Ok(())
}

/// The floats of NVFP4 with a scale for the whole tensor, which MLX's products with packed weights lack. They are rounded to
/// bfloat16, as by compressed-tensors 0.20 and ModelOpt 0.47, which write and unpack this format.
pub(super) fn two_level_floats(words: Array, scales: Array, factor: &Array) -> mlx::Result<Array> {
    let packed =
        Quantized { weight: words, scales, biases: None, group: 16, bits: 4, mode: QuantMode::Nvfp4 };
    (packed.dequantize(Dtype::F32)? * factor.astype(Dtype::F32)?.flatten(0, -1)?).astype(Dtype::Bf16)
}
