//! Input of one pass over sequences that are all alike, as a step of the loop would make it: for measurements and lists of a
//! pass by itself.

use mlx::Array;
use omnibus_core::random::Rng;
use omnibus_kv::{BlockId, BlockTable, CacheKind};
use omnibus_model::{Batch, KvCache, KvStorage, Model, Segment};

/// As the server's default.
const BLOCK_SIZE: usize = 32;

/// The rows of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PassInput {
    pub(crate) sequences: usize,
    /// Rows of each sequence.
    pub(crate) len: usize,
    /// Tokens before them, of each sequence.
    pub(crate) context: usize,
    /// Rows of the pass, with padding.
    pub(crate) rows: usize,
}

impl PassInput {
    /// The batch, with random tokens, and a KV cache of its own. The last row of each sequence has logits.
    pub(crate) fn build(self, model: &Model, storage: KvStorage) -> mlx::Result<(Batch, KvCache)> {
        let Self { sequences, len, context, rows } = self;
        let blueprint = model.blueprint();
        let groups = blueprint.kv_cache_groups(storage);
        let blocks = |kind: CacheKind| kind.blocks_for(BLOCK_SIZE, context + len);
        // One more than the sequences have: rows that fill a pass up write there.
        let counts: Vec<usize> = groups.iter().map(|group| blocks(group.spec.kind) * sequences + 1).collect();
        let cache = KvCache::new(blueprint, &counts, BLOCK_SIZE, storage)?;
        let segments = (0..sequences).map(|number| {
            let tables = groups.iter().map(|group| {
                let mut table = BlockTable::new(group.spec.kind, BLOCK_SIZE);
                let each = blocks(group.spec.kind);
                table.blocks.extend((number * each..(number + 1) * each).map(|block| BlockId(block as u32)));
                table
            });
            Segment {
                first: number * len,
                len,
                context,
                prompt: context.max(len),
                samples: 1,
                adapter: None,
                tables: tables.collect(),
            }
        });
        let mut rng = Rng::new(0);
        let tokens: Vec<i32> = (0..rows).map(|_| rng.below(blueprint.vocab as u64) as i32).collect();
        let batch = Batch {
            tokens: Array::from_slice(&tokens, &[rows as i32])?,
            segments: segments.collect(),
            logits_at: (0..sequences).map(|number| (number + 1) * len - 1).collect(),
            multimodal: None,
            hidden: None,
        };
        Ok((batch, cache))
    }
}
