//! What an attention layer caches: keys and values of all tokens, or of a window.

use omnibus_kv::{CacheKind, KvCacheSpec, KvFormat};

use super::{Attention, AttentionSpan};
use crate::mixers::MixerCache;
use crate::rope::Position;

impl MixerCache for Attention {
    fn is_own(&self) -> bool {
        self.has_keys()
    }

    fn cache_spec(&self, format: KvFormat) -> KvCacheSpec {
        let kind = match self.span {
            AttentionSpan::Full => CacheKind::Full,
            // A chunk ends within a window of its length.
            AttentionSpan::Window(tokens) | AttentionSpan::Chunk(tokens) => {
                CacheKind::SlidingWindow { tokens, sinks: 0 }
            }
            AttentionSpan::Sinks { tokens, sink_tokens } => {
                CacheKind::SlidingWindow { tokens, sinks: sink_tokens }
            }
        };
        KvCacheSpec { kind, format, elements: self.kv_heads * (self.head_dim + self.v_head_dim) }
    }

    /// Keys and values, `[blocks, block_size, kv_heads, stored width of a head]` each.
    fn pool_shapes(&self, blocks: usize, block_size: usize, format: KvFormat) -> [Vec<usize>; 2] {
        [self.head_dim, self.v_head_dim].map(|dim| vec![blocks, block_size, self.kv_heads, format.width(dim)])
    }

    fn shares_prefixes(&self) -> bool {
        !matches!(&self.position, Position::Rope(rope) if rope.depends_on_length())
    }

    fn kv_head_dims(&self) -> Vec<usize> {
        vec![self.head_dim, self.v_head_dim]
    }
}
