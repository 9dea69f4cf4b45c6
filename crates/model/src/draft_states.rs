//! What a pass of a draft head reads.

use mlx::Array;

/// Hidden states of the rows of a pass.
#[derive(Debug, Clone, Copy)]
pub enum DraftStates<'a> {
    /// The target's, `[T, width]`: those of all places that the head names, one beside the other.
    OfTarget(&'a Array),
    /// What the head's pass before gave, `[T, hidden]`.
    OfHead(&'a Array),
}

impl<'a> DraftStates<'a> {
    pub(crate) fn array(self) -> &'a Array {
        match self {
            Self::OfTarget(states) | Self::OfHead(states) => states,
        }
    }
}
