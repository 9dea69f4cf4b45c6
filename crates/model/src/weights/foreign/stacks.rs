//! ModelOpt's NVFP4 of stacked experts: `X` `[experts, out, in / 2]` and `X_weight_scale` `[experts, out, in / 16]`, in bytes,
//! and in `X_weight_scale_2` a scale of each expert, or of each half of its outputs.

use mlx::{Array, Dtype, QuantMode, Quantized};

use super::module::{Modules, refused};
use crate::weights::LoadError;

/// Stacks with scales of experts become bfloat16.
pub(super) fn convert(modules: &mut Modules) -> Result<(), LoadError> {
    for path in modules.ending("_weight_scale_2") {
        let mut need = |part: &str| {
            let missing = || refused(&path, format!("has no `{path}{part}`, which this format needs"));
            modules.take_named(&format!("{path}{part}")).ok_or_else(missing)
        };
        let (bytes, scales, factor) = (need("")?, need("_weight_scale")?, need("_weight_scale_2")?);
        let _of_activations = modules.take_named(&format!("{path}_input_scale"));
        let factor = by_output(&path, &bytes, &scales, &factor)?;
        let weight = bytes.view(Dtype::U32)?;
        let packed = Quantized { weight, scales, biases: None, group: 16, bits: 4, mode: QuantMode::Nvfp4 };
        let floats = packed.dequantize(Dtype::F32)? * factor;
        modules.put_named(&path, floats.astype(Dtype::Bf16)?);
    }
    Ok(())
}

/// A factor of each output, `[experts, out, 1]` float32.
fn by_output(path: &str, bytes: &Array, scales: &Array, factor: &Array) -> Result<Array, LoadError> {
    let shapes = || {
        format!("has {:?} bytes, {:?} scales, {:?} factors", bytes.shape(), scales.shape(), factor.shape())
    };
    let &[experts, outputs, width] = bytes.shape() else { return Err(refused(path, shapes())) };
    let factors = factor.size() as i32 / experts.max(1);
    let fits = scales.shape() == [experts, outputs, width / 8]
        && width % 8 == 0
        && factor.shape().first() == Some(&experts)
        && factors > 0
        && outputs % factors == 0
        && bytes.dtype()? == Dtype::U8
        && scales.dtype()? == Dtype::U8;
    if !fits {
        return Err(refused(path, shapes()));
    }
    let each = factor.astype(Dtype::F32)?.reshape(&[experts, factors, 1])?;
    Ok(each.repeat(outputs / factors, 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantization::{Foreign, Quantization};
    use crate::weights::Weights;

    const EXPERTS: i32 = 3;

    fn bytes(seed: u32, shape: &[i32], range: std::ops::Range<u32>) -> Array {
        let count = shape.iter().product::<i32>() as u32;
        let byte =
            |at: u32| range.start + (at + seed).wrapping_mul(2_654_435_761) / 65_536 % range.len() as u32;
        let bytes: Vec<u8> = (0..count).map(|at| byte(at) as u8).collect();
        Array::from_slice(&bytes, shape).unwrap()
    }

    /// Outputs `from..to` of one expert of a stack.
    fn rows(stack: &Array, expert: i32, [from, to]: [i32; 2]) -> Array {
        let width = stack.dim(-1).unwrap();
        let rows = stack.slice(&[expert, from, 0], &[expert + 1, to, width]).unwrap();
        rows.reshape(&[to - from, width]).unwrap()
    }

    fn converted(weights: Weights) -> Result<Weights, LoadError> {
        let mut quantization = Quantization { foreign: Some(Foreign::ModelOpt), ..Quantization::default() };
        super::super::convert(weights, &mut quantization)
    }

    /// As matrices of their own, which golden fixtures prove (`llama.modelopt-nvfp4.hf`).
    #[test]
    fn stacked_experts_have_the_numbers_of_matrices_with_their_scales() {
        for factors in [1, 2] {
            let [packed, scales] = [bytes(1, &[EXPERTS, 8, 24], 0..256), bytes(2, &[EXPERTS, 8, 3], 32..64)];
            let each: Vec<f32> = (0..EXPERTS * factors).map(|at| 0.05 + 0.01 * at as f32).collect();
            let shape = if factors == 1 { vec![EXPERTS] } else { vec![EXPERTS, factors] };
            let factor = Array::from_slice(&each, &shape).unwrap();
            let stack =
                [("x", packed.clone()), ("x_weight_scale", scales.clone()), ("x_weight_scale_2", factor)];
            let unread = [("x_input_scale", Array::ones(&[EXPERTS], Dtype::F32).unwrap())];
            let stack = stack.into_iter().chain(unread).map(|(name, tensor)| (name.to_owned(), tensor));
            let found = converted(stack.collect()).unwrap();
            assert_eq!(found.keys().collect::<Vec<_>>(), ["x"]);
            for (at, factor) in each.iter().enumerate() {
                let (expert, part) = (at as i32 / factors, at as i32 % factors);
                let outputs = [part * 8 / factors, (part + 1) * 8 / factors];
                let matrix = [
                    ("m.weight", rows(&packed, expert, outputs)),
                    ("m.weight_scale", rows(&scales, expert, outputs)),
                    ("m.weight_scale_2", Array::from_slice(&[*factor], &[1]).unwrap()),
                ];
                let want = converted(matrix.map(|(name, tensor)| (name.to_owned(), tensor)).into()).unwrap();
                let found = rows(&found["x"], expert, outputs);
                assert_eq!(found.to_bytes().unwrap(), want["m.weight"].to_bytes().unwrap(), "{at}");
            }
        }
    }

    #[test]
    fn a_stack_with_scales_of_another_shape_is_refused_by_its_name() {
        let tensors = [
            ("x", bytes(1, &[EXPERTS, 8, 24], 0..256)),
            ("x_weight_scale", bytes(2, &[EXPERTS, 8, 2], 32..64)),
            ("x_weight_scale_2", Array::ones(&[EXPERTS], Dtype::F32).unwrap()),
        ];
        let error = converted(tensors.map(|(name, tensor)| (name.to_owned(), tensor)).into()).unwrap_err();
        assert!(error.to_string().contains("`x` has [3, 8, 24] bytes, [3, 8, 2] scales"), "{error}");
    }
}
