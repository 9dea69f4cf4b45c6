//! Numbers as if they were stored in 8 or 4 bits: what the model was trained with.
//!
//! Source: mlx-lm `models/deepseek_v41.py`; the formats are those of the OCP microscaling specification.

use mlx::{Array, Dtype};

/// The largest number of E4M3, and of E2M1.
const E4M3_MAX: f32 = 448.0;
const E2M1_MAX: f32 = 6.0;

/// The scale of a block of 4-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockScale {
    /// A power of two.
    PowerOfTwo,
    /// A number of E4M3.
    E4m3,
}

/// `x`, `[.., width]`, as E4M3 in blocks of 32 with scales of powers of two; as it is if the width is no multiple of 32.
pub(super) fn as_e4m3(x: &Array) -> mlx::Result<Array> {
    in_blocks(x, 32, |blocks| {
        let scale = power_of_two(&(largest(blocks, 1e-4)? / E4M3_MAX))?;
        let codes = limited(&(blocks / &scale), E4M3_MAX)?.to_fp8()?;
        Ok(codes.from_fp8(Dtype::F32)? * scale)
    })
}

/// `x` as E2M1 in blocks of `size`.
pub(super) fn as_e2m1(x: &Array, size: i32, kind: BlockScale) -> mlx::Result<Array> {
    in_blocks(x, size, |blocks| {
        let scale = match kind {
            BlockScale::PowerOfTwo => {
                power_of_two(&(largest(blocks, E2M1_MAX * f32::MIN_POSITIVE)? / E2M1_MAX))?
            }
            BlockScale::E4m3 => {
                let least = E2M1_MAX * 2f32.powi(-9);
                (largest(blocks, least)? / E2M1_MAX).to_fp8()?.from_fp8(Dtype::F32)?
            }
        };
        Ok(rounded_to_e2m1(&limited(&(blocks / &scale), E2M1_MAX)?)? * scale)
    })
}

/// The nearest of 0, ½, 1, 1½, 2, 3, 4 and 6, with its sign; ties go to the even code.
fn rounded_to_e2m1(x: &Array) -> mlx::Result<Array> {
    let magnitude = x.abs()?;
    let above = |step: f32, from: f32, to: f32| -> mlx::Result<Array> {
        let part = magnitude.clip(Some(&scalar(from)?), Some(&scalar(to)?))? - from;
        Ok((part / step).round()? * step)
    };
    // Steps of ½ up to 2, of 1 up to 4, and one of 2. A tie at 2½ or 5 goes down, at 3½ up: to the even code.
    let four_to_six = magnitude.greater(&scalar(5.0)?)?.astype(Dtype::F32)? * 2.0;
    Ok(x.sign()? * (above(0.5, 0.0, 2.0)? + above(1.0, 2.0, 4.0)? + four_to_six))
}

fn in_blocks(x: &Array, size: i32, by: impl Fn(&Array) -> mlx::Result<Array>) -> mlx::Result<Array> {
    let width = x.shape().last().copied().unwrap_or(0);
    if width % size != 0 {
        return Ok(x.clone());
    }
    let blocks = x.astype(Dtype::F32)?.reshape(&[-1, size])?;
    by(&blocks)?.reshape(x.shape())?.astype(x.dtype()?)
}

/// The largest magnitude of each block, at least `least`.
fn largest(blocks: &Array, least: f32) -> mlx::Result<Array> {
    blocks.abs()?.max(&[-1])?.expand_dims(&[-1])?.maximum(&scalar(least)?)
}

/// The least power of two that is no smaller.
fn power_of_two(x: &Array) -> mlx::Result<Array> {
    scalar(2.0)?.power(&x.log2()?.ceil()?)
}

fn limited(x: &Array, limit: f32) -> mlx::Result<Array> {
    x.clip(Some(&scalar(-limit)?), Some(&scalar(limit)?))
}

fn scalar(number: f32) -> mlx::Result<Array> {
    Array::scalar(number, Dtype::F32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_4_bits_are_the_nearest_and_ties_go_to_even_codes() {
        let x: [f32; 16] =
            [0.2, 0.25, 0.26, 0.75, 1.25, 1.3, 1.75, 2.5, 2.6, 3.5, 4.9, 5.0, 5.1, 6.0, -0.75, -3.4];
        let want: [f32; 16] =
            [0.0, 0.0, 0.5, 1.0, 1.0, 1.5, 2.0, 2.0, 3.0, 4.0, 4.0, 4.0, 6.0, 6.0, -1.0, -3.0];
        let found = rounded_to_e2m1(&Array::from_slice(&x, &[x.len() as i32]).unwrap()).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), want);
    }
}
