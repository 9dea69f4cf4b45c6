//! Intermediate results of a latent attention layer.

use super::LatentAttention;
use crate::spec::Footprint;

impl Footprint for LatentAttention {
    /// Queries, absorbed queries, the latent, the heads' output, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        let head = self.query_head_dim() + 2 * self.latent_dim + self.v_head_dim;
        self.query_dim.unwrap_or(0) + self.heads * head + self.latent_dim + self.rope_dim + hidden
    }
}
