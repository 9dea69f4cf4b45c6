//! A causal convolution of each channel and its activation, `silu`, before a recurrence.

use mlx::{Array, cpu};

use crate::LoadError;
use crate::forward::StateMetadata;
use crate::weights::Store;

/// One weight for each channel and each of the last `conv_kernel_size` rows.
pub(crate) struct CausalConv {
    /// `[conv_kernel_size, channels]` f32, the oldest row first.
    weight: Array,
    /// `[channels]` f32.
    bias: Option<Array>,
}

impl CausalConv {
    pub(crate) fn load(store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let (weight, bias) = store.conv(path)?;
        Ok(Self { weight, bias })
    }

    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        [&self.weight].into_iter().chain(&self.bias)
    }

    /// Rows `[T, _]` whose channels begin at `offset` → `[T, channels]` and the pool, which is written in place.
    pub(crate) fn in_place(
        &self,
        x: &Array,
        offset: usize,
        metadata: &StateMetadata,
        pool: Array,
    ) -> mlx::Result<(Array, Array)> {
        let (weight, bias) = (&self.weight, self.bias.as_ref());
        cpu::CausalConv { x, offset: offset as i32, weight, bias, runs: &metadata.segments, pool }.run()
    }

    /// `x`: `[n, len, channels]` f32, after `before`, `[n, conv_kernel_size − 1, channels]` → as many rows, and what comes
    /// before the next ones.
    pub(crate) fn mlx(&self, x: &Array, before: &Array) -> mlx::Result<(Array, Array)> {
        let [count, len, channels] = x.dims()?;
        let size = self.weight.dim(0)?;
        let seen = mlx::concatenate(&[before, x], 1)?;
        let mut sum: Option<Array> = self.bias.clone();
        for tap in 0..size {
            let weight = self.weight.slice(&[tap, 0], &[tap + 1, channels])?;
            let term = seen.slice(&[0, tap, 0], &[count, tap + len, channels])? * weight;
            sum = Some(match sum {
                Some(sum) => sum + term,
                None => term,
            });
        }
        let sum = sum.ok_or_else(|| mlx::Error::new("a convolution has a kernel"))?;
        Ok((sum.silu()?, seen.slice(&[0, len, 0], &[count, len + size - 1, channels])?))
    }
}
