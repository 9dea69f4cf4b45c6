//! Intermediate results of an attention layer.

use super::Attention;

/// Queries (and their gates), keys, values, and the heads' output.
pub(super) fn row_elements(spec: &Attention) -> usize {
    let queries = spec.heads * (1 + usize::from(spec.out_gate));
    (queries + 2 * spec.kv_heads + spec.heads) * spec.head_dim
}
