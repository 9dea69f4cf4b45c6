//! A causal convolution of each channel, in MLX's operations.

use mlx::Array;

use crate::ops::CausalConv;

/// `x`: `[n, len, channels]` f32, after `before`, `[n, conv_kernel_size − 1, channels]` → as many rows of
/// `silu(convolution)`, and what comes before the next ones.
pub(super) fn causal_conv(conv: &CausalConv, x: &Array, before: &Array) -> mlx::Result<(Array, Array)> {
    let [count, len, channels] = x.dims()?;
    let size = conv.weight.dim(0)?;
    let joined = mlx::concatenate(&[before, x], 1)?;
    let mut sum: Option<Array> = conv.bias.clone();
    for tap in 0..size {
        let weight = conv.weight.slice(&[tap, 0], &[tap + 1, channels])?;
        let term = joined.slice(&[0, tap, 0], &[count, tap + len, channels])? * weight;
        sum = Some(match sum {
            Some(sum) => sum + term,
            None => term,
        });
    }
    let sum = sum.ok_or_else(|| mlx::Error::new("a convolution has a kernel"))?;
    Ok((sum.silu()?, joined.slice(&[0, len, 0], &[count, len + size - 1, channels])?))
}
