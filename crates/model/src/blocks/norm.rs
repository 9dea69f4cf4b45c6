//! Normalisation, and the residual stream it reads.

use mlx::{Array, fast};

use crate::Kernels;

/// `x / √(mean(x²) + eps) · weight`, over the last axis. `weight`: `[width]`.
pub(crate) struct RmsNorm {
    pub(crate) weight: Array,
    pub(crate) eps: f32,
}

impl RmsNorm {
    /// As the attention primitive takes it.
    pub(crate) fn of_heads(&self) -> mlx::cpu::HeadNorm<'_> {
        mlx::cpu::HeadNorm { weight: &self.weight, eps: self.eps }
    }

    pub(crate) fn forward(&self, x: &Array, kernels: Kernels) -> mlx::Result<Array> {
        match kernels {
            Kernels::Cpu => mlx::cpu::rms_norm(x, &self.weight, self.eps),
            Kernels::Mlx => fast::rms_norm(x, Some(&self.weight), self.eps),
        }
    }
}

/// The residual stream, `[T, hidden]`: a sum whose last term may still be outstanding, so that the
/// addition and the norm that follows it can be one kernel.
pub(crate) struct ResidualStream {
    sum: Array,
    pending: Option<Array>,
    kernels: Kernels,
}

impl ResidualStream {
    pub(crate) fn new(x: Array, kernels: Kernels) -> Self {
        Self { sum: x, pending: None, kernels }
    }

    /// `x += term`, later.
    pub(crate) fn add(&mut self, term: Array) {
        if let Some(pending) = self.pending.replace(term) {
            self.sum = &self.sum + pending;
        }
    }

    /// `norm(x)`, with all that was added.
    pub(crate) fn norm(&mut self, norm: &RmsNorm) -> mlx::Result<Array> {
        match (self.pending.take(), self.kernels) {
            (Some(pending), Kernels::Cpu) => {
                let (sum, normed) = mlx::cpu::add_rms_norm(&self.sum, &pending, &norm.weight, norm.eps)?;
                self.sum = sum;
                Ok(normed)
            }
            (Some(pending), Kernels::Mlx) => {
                self.sum = &self.sum + pending;
                norm.forward(&self.sum, self.kernels)
            }
            (None, kernels) => norm.forward(&self.sum, kernels),
        }
    }

    /// Keeps only `rows` of the stream, `[n]` i32.
    pub(crate) fn take_rows(&mut self, rows: &Array) -> mlx::Result<()> {
        self.sum = self.sum.take(rows, 0)?;
        self.pending = self.pending.take().map(|pending| pending.take(rows, 0)).transpose()?;
        Ok(())
    }
}
