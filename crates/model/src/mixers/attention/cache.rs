//! What an attention layer caches: keys and values of all tokens, or of a window.

use omnibus_kv::{CacheKind, KvCacheSpec, KvFormat};

use super::{Attention, AttentionSpan};

/// One layer's spec.
pub(super) fn spec(spec: &Attention, format: KvFormat) -> KvCacheSpec {
    let kind = match spec.span {
        AttentionSpan::Full => CacheKind::Full,
        AttentionSpan::Window(tokens) => CacheKind::SlidingWindow { tokens, sinks: 0 },
        AttentionSpan::Sinks { tokens, sink_tokens } => {
            CacheKind::SlidingWindow { tokens, sinks: sink_tokens }
        }
    };
    KvCacheSpec { kind, format, elements: 2 * spec.kv_heads * spec.head_dim }
}

/// Keys and values, `[blocks, block_size, kv_heads, stored width of a head]` each.
pub(super) fn pool_shapes(
    spec: &Attention,
    blocks: usize,
    block_size: usize,
    format: KvFormat,
) -> [Vec<usize>; 2] {
    let shape = vec![blocks, block_size, spec.kv_heads, format.width(spec.head_dim)];
    [shape.clone(), shape]
}
