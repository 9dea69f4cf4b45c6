//! Intermediate results of a gated delta layer.

use super::GatedDelta;
use crate::spec::Footprint;

impl Footprint for GatedDelta {
    /// The input projections, the convolution's output, the recurrence's output, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        let (keys, values) = (2 * self.keys(), self.values());
        (keys + 2 * values + 2 * self.v_heads) + (keys + values) + values + hidden
    }
}
