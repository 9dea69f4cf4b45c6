//! Affine packing of weights by how large the activations are that they meet.
//!
//! A weight's error is counted by the mean square of its input, as it changes the output. Each group tries narrower ranges
//! than that of its weights, and for each the scale and bias that are best for the codes. Sources: the clipping of AWQ (Lin
//! et al., arXiv 2306.00978, §3.2) with weighted least squares for scale and bias.

use mlx::{Array, Dtype, QuantMode, Quantized};

use crate::input_squares::rows_of;
use crate::quantization::QuantizationChoice;

/// Ranges that are tried, as shares of the whole range.
const SHARES: [f32; 6] = [1.0, 0.92, 0.84, 0.76, 0.68, 0.6];
/// Weights that are packed together, so that temporary arrays stay small.
const CHUNK: i32 = 1 << 24;

/// Packs `weight`, `[.., in]` floats, lazily. `squares`: `[in]` f32, the mean square of each input. Scales have the weight's
/// type. The error, weighted by the squares, is never above that of MLX's own packing but for rounding.
pub(super) fn quantize(
    weight: &Array,
    squares: &Array,
    choice: QuantizationChoice,
) -> mlx::Result<Quantized> {
    let QuantizationChoice { group, bits, .. } = choice;
    let shape = weight.shape().to_vec();
    let inputs = shape.last().copied().unwrap_or(1);
    let rows = rows_of(weight.size(), inputs)?;
    let flat = weight.reshape(&[rows, inputs])?;
    let each = (CHUNK / inputs.max(1)).max(1);
    let starts: Vec<i32> = (0..rows).step_by(each as usize).collect();
    let mut parts: [Vec<Array>; 3] = Default::default();
    for start in starts {
        let part = flat.slice(&[start, 0], &[(start + each).min(rows), inputs])?;
        for (all, array) in parts.iter_mut().zip(pack_rows(&part, squares, choice)?) {
            all.push(array);
        }
    }
    let whole = |arrays: &[Array]| -> mlx::Result<Array> {
        let joined = match arrays {
            [one] => one.clone(),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), 0)?,
        };
        let mut shape = shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = joined.dim(1)?;
        }
        joined.reshape(&shape)
    };
    let [weight, scales, biases] = &parts;
    let (weight, scales, biases) = (whole(weight)?, whole(scales)?, Some(whole(biases)?));
    Ok(Quantized { weight, scales, biases, group, bits, mode: QuantMode::Affine })
}

/// Codes, scales and biases of `[rows, in]` weights.
fn pack_rows(weight: &Array, squares: &Array, choice: QuantizationChoice) -> mlx::Result<[Array; 3]> {
    let QuantizationChoice { group, bits, .. } = choice;
    let [rows, inputs] = weight.dims()?;
    let groups = inputs / group;
    let dtype = weight.dtype()?;
    let weights = weight.astype(Dtype::F32)?.reshape(&[rows, groups, group])?;
    // A little for each input, so that those that were always zero count, too.
    let mean = squares.astype(Dtype::F32)?.mean(&[-1])?;
    let importance = (squares.astype(Dtype::F32)? + mean * 1e-3 + 1e-20).reshape(&[1, groups, group])?;
    let product = &importance * &weights;
    let problem = Groups {
        importances: importance.sum_keepdims(&[-1])?,
        products: product.sum_keepdims(&[-1])?,
        product,
        importance,
        weights,
        levels: ((1 << bits) - 1) as f32,
        dtype,
    };
    let Best { scale, bias, .. } = problem.best(weight, choice)?;
    let codes = problem.codes(&scale, &bias)?.astype(Dtype::U32)?.reshape(&[rows, inputs])?;
    let narrow = |array: &Array| array.reshape(&[rows, groups])?.astype(dtype);
    Ok([packed(&codes, bits)?, narrow(&scale)?, narrow(&bias)?])
}

/// Groups of weights `[rows, groups, group]`, and what is wanted of them.
struct Groups {
    weights: Array,
    /// `[1, groups, group]`
    importance: Array,
    /// Importance times weight.
    product: Array,
    /// The sum of each group's importance, `[1, groups, 1]`.
    importances: Array,
    /// The sum of each group's products, `[rows, groups, 1]`.
    products: Array,
    levels: f32,
    /// Of scales and biases.
    dtype: Dtype,
}

/// The best scale and bias so far, and their error, `[rows, groups, 1]`.
struct Best {
    scale: Array,
    bias: Array,
    error: Array,
}

impl Groups {
    /// The best of MLX's own range and of narrower ones.
    fn best(&self, weight: &Array, choice: QuantizationChoice) -> mlx::Result<Best> {
        let own = weight.quantize(choice.group, choice.bits, QuantMode::Affine)?;
        let column = |array: &Array| array.astype(Dtype::F32)?.expand_dims(&[-1]);
        let (scale, bias) = (column(&own.scales)?, column(own.biases.as_ref().unwrap_or(&own.scales))?);
        let mut best = Best { error: self.error(&scale, &bias)?, scale, bias };
        let (low, high) = (self.weights.min_keepdims(&[-1])?, self.weights.max_keepdims(&[-1])?);
        for share in SHARES {
            let (low, high) = (&low * share, &high * share);
            let step = (high - &low) / self.levels;
            // A group of equal weights has no range.
            let step = step.maximum(&Array::scalar(1e-12, Dtype::F32)?)?;
            let codes = self.codes(&step, &low)?;
            let (scale, bias) = self.fitted(&codes, (&step, &low))?;
            let error = self.error(&scale, &bias)?;
            let better = error.less(&best.error)?;
            best = Best {
                scale: mlx::where_(&better, &scale, &best.scale)?,
                bias: mlx::where_(&better, &bias, &best.bias)?,
                error: mlx::where_(&better, &error, &best.error)?,
            };
        }
        Ok(best)
    }

    /// The codes of a scale and a bias, as floats.
    fn codes(&self, scale: &Array, bias: &Array) -> mlx::Result<Array> {
        let codes = ((&self.weights - bias) / scale).round()?;
        let most = Array::scalar(self.levels, Dtype::F32)?;
        codes.maximum(&Array::scalar(0.0, Dtype::F32)?)?.minimum(&most)
    }

    /// The scale and the bias with the least error for these codes, as they are stored.
    fn fitted(&self, codes: &Array, (step, low): (&Array, &Array)) -> mlx::Result<(Array, Array)> {
        let sum = |array: Array| array.sum_keepdims(&[-1]);
        let (all, of_weights) = (&self.importances, &self.products);
        let weighted = &self.importance * codes;
        let of_products = sum(&self.product * codes)?;
        let (of_codes, of_squares) = (sum(weighted.clone())?, sum(weighted * codes)?);
        let determinant = all * &of_squares - &of_codes * &of_codes;
        let solvable = determinant.greater(&(all * &of_squares * 1e-6))?;
        let one = Array::scalar(1.0, Dtype::F32)?;
        let divisor = mlx::where_(&solvable, &determinant, &one)?;
        let scale = (all * &of_products - &of_codes * of_weights) / divisor;
        let solvable = solvable.logical_and(&scale.greater(&Array::scalar(1e-12, Dtype::F32)?)?)?;
        let bias = (of_weights - &scale * of_codes) / all;
        let stored = |array: Array| array.astype(self.dtype)?.astype(Dtype::F32);
        Ok((stored(mlx::where_(&solvable, &scale, step)?)?, stored(mlx::where_(&solvable, &bias, low)?)?))
    }

    /// The weighted square error, `[rows, groups, 1]`; infinite where a scale is zero.
    fn error(&self, scale: &Array, bias: &Array) -> mlx::Result<Array> {
        let apart = &self.weights - (self.codes(scale, bias)? * scale + bias);
        let error = (&self.importance * &apart * &apart).sum_keepdims(&[-1])?;
        let endless = Array::scalar(f32::MAX, Dtype::F32)?;
        mlx::where_(&error.less(&endless)?, &error, &endless)
    }
}

/// Codes `[rows, in]` as a stream of bits in words, the lowest first.
fn packed(codes: &Array, bits: i32) -> mlx::Result<Array> {
    let [rows, inputs] = codes.dims()?;
    let numbers = |values: Vec<u32>| Array::from_slice(&values, &[values.len() as i32]);
    if 32 % bits == 0 {
        let shifts = numbers((0..32 / bits).map(|at| (at * bits) as u32).collect())?;
        let lanes = codes.reshape(&[rows, inputs * bits / 32, 32 / bits])?;
        return lanes.left_shift(&shifts)?.sum(&[-1])?.astype(Dtype::U32);
    }
    let of_code = numbers((0..bits as u32).collect())?;
    let stream = codes.expand_dims(&[-1])?.right_shift(&of_code)?.bitwise_and(&numbers(vec![1])?)?;
    let words = stream.reshape(&[rows, inputs * bits / 32, 32])?;
    words.left_shift(&numbers((0..32).collect())?)?.sum(&[-1])?.astype(Dtype::U32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(bits: i32) -> QuantizationChoice {
        QuantizationChoice { group: 32, bits, mode: QuantMode::Affine }
    }

    /// Weights with a few large ones.
    fn weights(dtype: Dtype) -> Array {
        let values: Vec<f32> =
            (0..24 * 96).map(|at| (at as f32 * 0.37).sin() * if at % 29 == 0 { 3.0 } else { 0.4 }).collect();
        Array::from_slice(&values, &[24, 96]).unwrap().astype(dtype).unwrap()
    }

    fn squares(of: impl Fn(usize) -> f32) -> Array {
        Array::from_slice(&(0..96).map(of).collect::<Vec<f32>>(), &[96]).unwrap()
    }

    fn error(weights: &Array, packed: &Quantized, squares: &Array) -> f32 {
        let dtype = weights.dtype().unwrap();
        let apart = weights.astype(Dtype::F32).unwrap()
            - packed.dequantize(dtype).unwrap().astype(Dtype::F32).unwrap();
        (&apart * &apart * squares).sum(&[0, 1]).unwrap().to_vec::<f32>().unwrap()[0]
    }

    #[test]
    fn weighted_errors_are_below_those_of_mlxs_packing() {
        for dtype in [Dtype::F32, Dtype::F16] {
            for bits in [2, 3, 4, 5, 6, 8] {
                let weights = weights(dtype);
                let plain = weights.quantize(32, bits, QuantMode::Affine).unwrap();
                for squares in [squares(|_| 1.0), squares(|at| if at % 7 == 0 { 100.0 } else { 0.1 })] {
                    let ours = quantize(&weights, &squares, choice(bits)).unwrap();
                    let shapes = [&ours.weight, &ours.scales].map(|array| array.shape().to_vec());
                    assert_eq!(shapes, [&plain.weight, &plain.scales].map(|array| array.shape().to_vec()));
                    let (found, before) =
                        (error(&weights, &ours, &squares), error(&weights, &plain, &squares));
                    let most = if bits < 5 { 0.9 } else { 1.02 };
                    assert!(found < before * most, "{bits} bits: {found} beside {before}");
                }
            }
        }
    }

    #[test]
    fn groups_of_equal_weights_and_of_zeros_are_kept() {
        let values = [vec![0.0_f32; 32], vec![0.25; 32], vec![-1.5; 32]].concat();
        let weights = Array::from_slice(&values, &[1, 96]).unwrap();
        let packed = quantize(&weights, &squares(|_| 0.0), choice(4)).unwrap();
        let kept = packed.dequantize(Dtype::F32).unwrap().to_vec::<f32>().unwrap();
        assert!(kept.iter().zip(&values).all(|(kept, value)| (kept - value).abs() < 1e-4), "{kept:?}");
    }
}
