//! The state slot of a gated delta layer.

use super::GatedDelta;
use crate::mixers::Recurrence;

impl Recurrence for GatedDelta {
    /// The convolution's last rows, `[conv_kernel_size − 1, channels]`, and the state, `[v_heads, v_dim, k_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        let conv = vec![self.conv_kernel_size - 1, self.conv_channels()];
        [conv, vec![self.v_heads, self.v_dim, self.k_dim]]
    }
}
