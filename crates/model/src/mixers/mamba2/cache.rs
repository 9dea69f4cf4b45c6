//! The state slot of a Mamba-2 layer.

use super::Mamba2;
use crate::mixers::Recurrence;

impl Recurrence for Mamba2 {
    /// The convolution's last rows, `[conv_kernel_size − 1, channels]`, and the state, `[heads, head_dim, state_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        let conv = vec![self.conv_kernel_size - 1, self.conv_channels()];
        [conv, vec![self.heads, self.head_dim, self.state_dim]]
    }
}
