//! Terms of the residual stream.

use mlx::Array;

/// What is added to the residual stream.
#[derive(Clone)]
pub(crate) struct Term {
    /// `[T, hidden]`
    pub(crate) rows: Array,
    pub(crate) joined: Joined,
}

/// How a term joins the stream.
#[derive(Clone)]
pub(crate) enum Joined {
    Plain,
    /// Times a factor.
    Scaled(f32),
    /// Its RMS norm, with weights `[hidden]`.
    Normed {
        weight: Array,
        eps: f32,
    },
}

impl Term {
    pub(crate) fn plain(rows: Array) -> Self {
        Self { rows, joined: Joined::Plain }
    }
}
