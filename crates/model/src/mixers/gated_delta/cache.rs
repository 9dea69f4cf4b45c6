//! The state slot of a gated delta layer.

use super::GatedDelta;

/// The convolution's last rows, `[conv_kernel_size − 1, channels]`, and the state, `[v_heads, v_dim, k_dim]`.
pub(super) fn slot_shapes(spec: &GatedDelta) -> [Vec<usize>; 2] {
    let conv = vec![spec.conv_kernel_size - 1, spec.conv_channels()];
    [conv, vec![spec.v_heads, spec.v_dim, spec.k_dim]]
}
