//! The state slot of a Mamba-2 layer.

use super::Mamba2;

/// The convolution's last rows, `[conv_kernel_size − 1, channels]`, and the state, `[heads, head_dim, state_dim]`.
pub(super) fn slot_shapes(spec: &Mamba2) -> [Vec<usize>; 2] {
    let conv = vec![spec.conv_kernel_size - 1, spec.conv_channels()];
    [conv, vec![spec.heads, spec.head_dim, spec.state_dim]]
}
