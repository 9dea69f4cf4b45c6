//! Intermediate results of an attention layer.

use super::Attention;
use crate::spec::Footprint;

impl Footprint for Attention {
    /// Queries (and their gates), keys, values, the heads' output, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        let queries = self.heads * (1 + usize::from(self.out_gate.is_some()));
        (queries + 2 * self.kv_heads + self.heads) * self.head_dim + hidden
    }
}
