//! Intermediate results of a Mamba-2 layer.

use super::Mamba2;

/// The input projection, the convolution's output, and the recurrence's output.
pub(super) fn row_elements(spec: &Mamba2) -> usize {
    let (inner, keys) = (spec.inner(), 2 * spec.groups * spec.state_dim);
    (2 * inner + keys + spec.heads) + (inner + keys) + inner
}
