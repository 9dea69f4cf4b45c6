//! Where the stream of a draft head begins.

use mlx::Array;

use super::{Linear, NormBlock};
use crate::blueprint::{FUSE, HeadStates};
use crate::norm::Norm;
use crate::ops::Ops;
use crate::weights::{LoadError, Store};

/// How embeddings and hidden states become a stream, with its weights.
pub(crate) enum FuseBlock {
    /// Both, each behind a norm, through one projection.
    Joined { ops: Ops, embedding: NormBlock, state: NormBlock, projection: Linear },
    /// Streams of the target model through a projection.
    Streams { projection: Linear },
    /// Streams of the target model through a projection and a norm, of which layers make keys and values.
    Context { projection: Linear, norm: NormBlock },
}

impl FuseBlock {
    /// `norm`: that of what is joined.
    pub(crate) fn load(
        states: HeadStates,
        norm: Norm,
        store: &mut Store,
        root: &str,
    ) -> Result<Self, LoadError> {
        let (at, hidden) = (format!("{root}.{FUSE}"), store.hidden());
        Ok(match states {
            HeadStates::FinalNorm => Self::Joined {
                ops: store.ops(),
                embedding: store.norm(&format!("{at}.embedding_norm"), norm, hidden)?,
                state: store.norm(&format!("{at}.state_norm"), norm, hidden)?,
                projection: store.linear(&format!("{at}.projection"))?,
            },
            HeadStates::Streams(_) => {
                Self::Streams { projection: store.linear(&format!("{at}.projection"))? }
            }
            HeadStates::Context(_) => Self::Context {
                projection: store.linear(&format!("{at}.projection"))?,
                norm: store.norm(&format!("{at}.state_norm"), norm, hidden)?,
            },
        })
    }

    /// The target model's hidden states, `[T, width]`, as passes read them.
    pub(crate) fn of_target(&self, states: &Array) -> mlx::Result<Array> {
        match self {
            Self::Joined { .. } => Ok(states.clone()),
            Self::Streams { projection } => projection.forward(states),
            Self::Context { projection, norm } => norm.forward(&projection.forward(states)?),
        }
    }

    /// The stream, `[T, hidden]`, of embeddings and states of as many rows; a block of tokens behind a context has none.
    pub(crate) fn stream(&self, embedded: &Array, states: Option<&Array>) -> mlx::Result<Array> {
        let states = || states.ok_or_else(|| mlx::Error::new("the hidden states of a draft head's rows"));
        match self {
            Self::Joined { ops, embedding, state, projection } => {
                projection.forward(&ops.join(&embedding.forward(embedded)?, &state.forward(states()?)?)?)
            }
            Self::Streams { .. } => states().cloned(),
            Self::Context { .. } => Ok(embedded.clone()),
        }
    }
}
