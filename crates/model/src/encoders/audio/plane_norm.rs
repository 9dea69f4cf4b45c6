//! Norms of planes behind the convolutions of a stem.

use mlx::{Array, Dtype};

use super::blueprint::PlaneNorm;
use crate::blocks::NormBlock;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// A norm with its weights.
pub(super) enum PlaneNormBlock {
    Channels(NormBlock),
    /// `weight`: `[channels]`, float32.
    Cumulative {
        weight: Param,
        eps: f32,
    },
}

impl PlaneNormBlock {
    pub(super) fn load(
        norm: PlaneNorm,
        store: &mut Store,
        path: &str,
        width: usize,
    ) -> Result<Self, LoadError> {
        Ok(match norm {
            PlaneNorm::Channels(norm) => Self::Channels(store.norm(path, norm, width)?),
            PlaneNorm::Cumulative { eps } => {
                Self::Cumulative { weight: store.float(&format!("{path}.weight"))?, eps }
            }
        })
    }

    /// `[1, rows, bands, channels]` → the same.
    pub(super) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        match self {
            Self::Channels(norm) => norm.forward(x),
            Self::Cumulative { weight, eps } => cumulative(x, weight, *eps),
        }
    }
}

/// Group norm of one group whose mean and variance are those of a row and all rows before it, in float32. The variance sums
/// each row's distances from the mean up to that row.
///
/// Source: transformers `models/gemma3n/modeling_gemma3n.py`.
fn cumulative(x: &Array, weight: &Array, eps: f32) -> mlx::Result<Array> {
    let [_, rows, bands, channels] = x.dims()?;
    let elements = bands as f32 * channels as f32;
    let counts: Vec<f32> = (1..=rows).map(|row| row as f32 * elements).collect();
    let counts = Array::from_slice(&counts, &[1, rows, 1, 1])?;
    let so_far = |x: &Array| Ok::<Array, mlx::Error>(x.sum_keepdims(&[2, 3])?.cumsum(1)? / &counts);
    let wide = x.astype(Dtype::F32)?;
    let centred = &wide - so_far(&wide)?;
    let scale = (so_far(&centred.square()?)? + eps).rsqrt()?;
    (centred * scale * weight).astype(x.dtype()?)
}
