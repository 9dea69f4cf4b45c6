//! Which kernels compute: chosen once, when a model is loaded.

use mlx::Dtype;

/// Which kernels compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    /// MLX's own operations: right on every backend.
    Mlx,
    /// Our CPU primitives, beside MLX's operations. Activations are float32.
    Cpu,
}

impl Kernels {
    /// The fastest that the default device can run.
    pub fn fastest() -> Self {
        if mlx::cpu::available() { Self::Cpu } else { Self::Mlx }
    }

    /// The dtype that these kernels need activations in, if any. MLX's CPU kernels are many
    /// times slower on half-width floats than on float32, so both CPU paths do.
    pub(crate) fn activations(self) -> Option<Dtype> {
        match self {
            Self::Cpu => Some(Dtype::F32),
            Self::Mlx if mlx::cpu::available() => Some(Dtype::F32),
            Self::Mlx => None,
        }
    }

    /// True when dense weights of this dtype can stay as they are stored.
    pub(crate) fn reads_dense(self, dtype: Dtype) -> bool {
        match self {
            Self::Cpu => matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16),
            Self::Mlx => false,
        }
    }
}
