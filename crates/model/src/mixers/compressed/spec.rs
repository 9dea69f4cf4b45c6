//! What a layer computes, what it caches, and its rules.

use omnibus_kv::CacheKind;

use crate::mixers::{MixerCache, MixerSpec, Recurrence, RowCache};
use crate::rope::{Position, Rope};
use crate::rules::Broken;
use crate::spec::{Footprint, Rules};

/// Attention whose keys are also its values: one latent a position, which all heads read, in a window, and entries.
#[derive(Debug, Clone, PartialEq)]
pub struct CompressedAttention {
    /// Query heads.
    pub heads: usize,
    /// Latents of the window, as wide as a head.
    pub window: RowCache,
    /// Queries come from a vector this wide (`q_lora_rank`).
    pub query_dim: usize,
    /// Rotates the last dimensions of queries and latents, and turns the heads' output back.
    pub rope: Rope,
    /// Heads in groups, each with a projection to a vector of this width.
    pub out_groups: usize,
    /// That width.
    pub out_rank: usize,
    /// Of all norms in it.
    pub norm_eps: f32,
    /// What it reads beyond the window.
    pub entries: Option<EntryReads>,
}

/// Entries that a layer reads.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryReads {
    /// Positions of an entry.
    pub ratio: usize,
    /// The layer that makes them, by its index in the blueprint.
    pub source: usize,
    /// How, if it is this one.
    pub compressor: Option<Compressor>,
    /// The layer whose indexer chooses those that a row reads.
    pub chooser: usize,
    /// How, if it is this one.
    pub indexer: Option<EntryIndexer>,
}

/// Makes entries: means of positions, weighed by a softmax of gates.
#[derive(Debug, Clone, PartialEq)]
pub struct Compressor {
    /// The positions of a group that is not yet whole; none where an entry is one position.
    pub open: Option<OpenGroup>,
    /// Entries, as wide as a head.
    pub entries: RowCache,
    /// Keys of entries, where the layer has an indexer.
    pub keys: Option<RowCache>,
}

/// The last positions' projections and gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct OpenGroup {
    pub ratio: usize,
    /// Of an entry.
    pub width: usize,
}

/// Scores of entries are sums over heads of `relu(query · key)`, each times a weight of the row.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryIndexer {
    /// Its heads.
    pub heads: usize,
    /// Width of a key.
    pub width: usize,
    /// A row reads this many entries.
    pub kept: usize,
    /// Which entries it chooses from.
    pub candidates: Candidates,
}

/// Which entries an indexer chooses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Candidates {
    /// All that a row sees.
    All,
    /// All; and the best `blocks` blocks of `size` entries are the candidates of later layers.
    Nominates { blocks: usize, size: usize },
    /// Blocks that this layer nominated.
    Of(usize),
}

impl CompressedAttention {
    /// Width of a head, and of a latent.
    pub fn head_dim(&self) -> usize {
        self.window.width
    }

    pub(super) fn compressor(&self) -> Option<&Compressor> {
        self.entries.as_ref()?.compressor.as_ref()
    }

    pub(super) fn indexer(&self) -> Option<&EntryIndexer> {
        self.entries.as_ref()?.indexer.as_ref()
    }
}

impl Recurrence for OpenGroup {
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![self.ratio - 1, 2 * self.width], vec![1]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

/// Places of a layer's caches: the window, then these.
pub(super) const ENTRIES: usize = 1;
pub(super) const KEYS: usize = 2;

impl CompressedAttention {
    /// Where the open group is cached.
    pub(super) fn open_part(&self) -> usize {
        let keys = self.compressor().is_some_and(|compressor| compressor.keys.is_some());
        if keys { KEYS + 1 } else { ENTRIES + 1 }
    }
}

impl MixerSpec for CompressedAttention {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        let mut caches: Vec<&dyn MixerCache> = vec![&self.window];
        if let Some(Compressor { open, entries, keys }) = self.compressor() {
            caches.push(entries);
            caches.extend(keys.iter().map(|keys| keys as &dyn MixerCache));
            caches.extend(open.iter().map(|open| open as &dyn MixerCache));
        }
        caches
    }
}

impl Rules for CompressedAttention {
    fn check_rules(&self, broken: &mut Broken) {
        let heads = ("num_attention_heads", self.heads);
        broken.size(&[heads, ("head_dim", self.head_dim())]);
        broken.check(self.head_dim() > 1, || "`head_dim` is at least 2".to_owned());
        broken.size(&[("q_lora_rank", self.query_dim)]);
        broken.size(&[("o_groups", self.out_groups), ("o_lora_rank", self.out_rank)]);
        broken.divides(("o_groups", self.out_groups), heads);
        broken.position(&Position::Rope(self.rope.clone()), self.head_dim());
        let is_window = matches!(self.window.kind, CacheKind::SlidingWindow { .. });
        broken.check(is_window && self.window.kind.is_valid(), || {
            "`sliding_window` holds at least one token".to_owned()
        });
        if let Some(entries) = &self.entries {
            broken.size(&[("compress_ratios", entries.ratio)]);
        }
        if let Some(indexer) = self.indexer() {
            broken.size(&[("index_n_heads", indexer.heads), ("index_head_dim", indexer.width / 2)]);
            broken.size(&[("index_topk", indexer.kept)]);
            broken.position(&Position::Rope(self.rope.clone()), indexer.width);
            if let Candidates::Nominates { blocks, size } = indexer.candidates {
                broken.size(&[("candidate_topk_blocks", blocks), ("candidate_block_size", size)]);
            }
        }
    }
}

impl Footprint for CompressedAttention {
    /// Queries, latents, the heads' output, its groups' vectors, the output, and what the indexer makes.
    fn row_elements(&self, hidden: usize) -> usize {
        let index = self.indexer().map_or(0, |indexer| (indexer.heads + 1) * indexer.width);
        let head = self.head_dim();
        self.query_dim + (2 * self.heads + 3) * head + self.out_groups * self.out_rank + hidden + index
    }
}
