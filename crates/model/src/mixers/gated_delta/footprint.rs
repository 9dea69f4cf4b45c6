//! Intermediate results of a gated delta layer.

use super::GatedDelta;

/// The input projections, the convolution's output, and the recurrence's output.
pub(super) fn row_elements(spec: &GatedDelta) -> usize {
    let (keys, values) = (2 * spec.keys(), spec.values());
    (keys + 2 * values + 2 * spec.v_heads) + (keys + values) + values
}
