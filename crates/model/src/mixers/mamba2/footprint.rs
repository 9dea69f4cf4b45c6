//! Intermediate results of a Mamba-2 layer.

use super::Mamba2;
use crate::spec::Footprint;

impl Footprint for Mamba2 {
    /// The input projection, the convolution's output, the recurrence's output, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        let (inner, keys) = (self.inner(), 2 * self.groups * self.state_dim);
        (2 * inner + keys + self.heads) + (inner + keys) + inner + hidden
    }
}
