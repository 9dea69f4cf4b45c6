//! How what a mixer or an MLP computes joins the stream.

use mlx::Array;

use super::{NormBlock, ResidualStream};
use crate::blueprint::Residual;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The way, with its weights.
pub(crate) enum ResidualBlock {
    Scaled(f32),
    /// The hyperbolic tangent of a gate, `[1]`.
    Gate(Param),
    /// Shares of the stream and of what joins it, `[hidden]` f32 each.
    Gated {
        stays: Param,
        joins: Param,
    },
}

impl ResidualBlock {
    /// `path`: that of its tensors without their endings.
    pub(crate) fn load(spec: Residual, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(match spec {
            Residual::Scaled(scale) => Self::Scaled(scale),
            Residual::TanhGate => Self::Gate(store.vector(&format!("{path}_gate"))?.map(Array::tanh)?),
            Residual::Gated => Self::Gated {
                stays: store.float(&format!("{path}_alpha"))?,
                joins: store.float(&format!("{path}_beta"))?,
            },
        })
    }

    /// Adds `term`, `[T, hidden]`, to `x`.
    pub(crate) fn add(&self, x: &mut ResidualStream, term: Array) -> mlx::Result<()> {
        match self {
            Self::Scaled(1.0) => x.add(term),
            Self::Scaled(scale) => x.add_scaled(term, *scale),
            Self::Gate(gate) => x.add(term * gate),
            Self::Gated { stays, joins } => {
                let kept = x.value()? * stays;
                x.set(kept + term * joins);
                Ok(())
            }
        }
    }

    /// Adds `norm(term)`, `[T, hidden]`, to `x`.
    pub(crate) fn add_normed(
        &self,
        x: &mut ResidualStream,
        term: Array,
        norm: &NormBlock,
    ) -> mlx::Result<()> {
        match self {
            Self::Scaled(1.0) => x.add_normed(term, norm),
            Self::Scaled(_) | Self::Gate(_) | Self::Gated { .. } => self.add(x, norm.forward(&term)?),
        }
    }
}
