//! Keys and values that are gathered for MLX's operations, and the masks of what each row sees.

use mlx::{Array, fast};
use omnibus_kv::{BlockId, BlockTable, CacheKind};

use super::row_split::Sight;
use super::rows::{Rows, singles_and_chunks, table_of};
use super::short_chunks::ShortChunks;
use crate::batch::Segment;
use crate::kv_cache::{KvCache, block_indices};
use crate::mixers::Bidirectional;

/// Rows that attend in one call on the gather path.
pub(crate) struct Gather {
    pub(crate) rows: Rows,
    /// `[n, blocks]` i32, one block table a segment, padded with the scratch block.
    pub(crate) tables: Array,
    /// Gathered keys past this many are cut off.
    pub(crate) keys: i32,
    /// `true` where a row attends to a key, `[n, 1, rows, keys]`; `None` is causal.
    pub(crate) mask: Option<Array>,
    /// The mask where attention is bidirectional; `None` if no row sees a later key.
    bidirectional: Option<Array>,
    /// That mask where the window hides later keys, too.
    symmetric: Option<Array>,
    /// Whether rows may see no key at all.
    pub(crate) may_be_blind: bool,
    /// Positions of each segment's first row and first key; of a cache without sinks.
    starts: Vec<[i32; 2]>,
}

impl Gather {
    pub(crate) fn mask(&self) -> fast::Mask<'_> {
        match &self.mask {
            Some(mask) => fast::Mask::Array(mask),
            None => fast::Mask::Causal,
        }
    }

    /// The mask of layers that attend in these directions; `None` is causal.
    pub(crate) fn mask_of(&self, directions: Bidirectional) -> Option<&Array> {
        let later = match directions {
            Bidirectional::No => None,
            Bidirectional::Pictures | Bidirectional::AllPictures | Bidirectional::Prompts => {
                self.bidirectional.as_ref()
            }
            Bidirectional::Symmetric => self.symmetric.as_ref().or(self.bidirectional.as_ref()),
        };
        later.or(self.mask.as_ref())
    }

    /// Positions of rows, `[n, 1, rows, 1]`, and of keys, `[n, 1, 1, keys]`, i32.
    pub(crate) fn positions(&self) -> mlx::Result<[Array; 2]> {
        let rows = match &self.rows {
            Rows::Chunk { len, .. } => *len,
            Rows::Singles(_) => 1,
        };
        let count = self.starts.len() as i32;
        let run = |which: usize, len: i32, shape: [i32; 4]| {
            let numbers = self.starts.iter().flat_map(|starts| starts[which]..starts[which] + len);
            Array::from_slice(&numbers.collect::<Vec<i32>>(), &shape)
        };
        Ok([run(0, rows, [count, 1, rows, 1])?, run(1, self.keys, [count, 1, 1, self.keys])?])
    }

    /// `true` where a row of layers that attend in these directions sees a key, `[n, 1, rows, keys]`, made if the mask is only
    /// causal.
    pub(crate) fn visible_in(&self, directions: Bidirectional, positions: &[Array; 2]) -> mlx::Result<Array> {
        match self.mask_of(directions) {
            Some(mask) => Ok(mask.clone()),
            None => self.visible(positions),
        }
    }

    /// `true` where a row attends to a key, `[n, 1, rows, keys]`, made if the mask is only causal.
    pub(crate) fn visible(&self, [rows, keys]: &[Array; 2]) -> mlx::Result<Array> {
        match &self.mask {
            Some(mask) => Ok(mask.clone()),
            None => rows.greater_equal(keys),
        }
    }
}

/// Positions of a segment's first row and of the first key that it gathers.
fn starts(segment: &Segment, table: &BlockTable, block_size: usize) -> [i32; 2] {
    [segment.context as i32, (table.freed_blocks * block_size) as i32]
}

/// Gathers of all rows: of rows that decode together, and of each chunk.
pub(super) fn gathers(
    (segments, sight): (&[Segment], Sight),
    group: usize,
    cache: &KvCache,
) -> mlx::Result<Vec<Gather>> {
    let (singles, chunks) = singles_and_chunks(segments);
    let mut gathers = Vec::new();
    if !singles.is_empty() {
        gathers.push(gather_singles((&singles, sight), group, cache)?);
    }
    for segment in &chunks {
        gathers.push(gather_chunk((segment, sight), group, cache)?);
    }
    Ok(gathers)
}

/// Gathers of chunks that are no [items](super::Items) of one row, which see what lies before them.
pub(super) fn chunk_gathers(segments: &[Segment], group: usize, cache: &KvCache) -> mlx::Result<Vec<Gather>> {
    let chunks = segments.iter().filter(|segment| ShortChunks::of_device().is_chunk(segment));
    chunks.map(|segment| gather_chunk((segment, Sight::CAUSAL), group, cache)).collect()
}

fn gather_singles(
    (segments, sight): (&[&Segment], Sight),
    group: usize,
    cache: &KvCache,
) -> mlx::Result<Gather> {
    let tables = segments.iter().map(|segment| table_of(segment, group)).collect::<mlx::Result<Vec<_>>>()?;
    let width = tables.iter().map(|table| table.blocks.len()).max().unwrap_or(0);
    let scratch = BlockId(cache.blocks[group] as u32);
    let padded: Vec<BlockId> = tables
        .iter()
        .flat_map(|table| (0..width).map(|i| table.blocks.get(i).copied().unwrap_or(scratch)))
        .collect();
    let keys = width * cache.block_size;
    let mask: Vec<bool> = segments
        .iter()
        .zip(&tables)
        .flat_map(|(segment, table)| {
            let visible = Visible::new(segment, (sight, table), group, cache);
            (0..keys).map(move |key| visible.is_visible(segment.context, key))
        })
        .collect();
    let count = segments.len() as i32;
    let hides = segments.iter().any(|segment| sight.first_unattended(segment).is_some());
    Ok(Gather {
        rows: Rows::of(segments.iter().map(|segment| segment.rows()))?,
        tables: block_indices(&padded)?.reshape(&[count, width as i32])?,
        keys: keys as i32,
        mask: Some(Array::from_slice(&mask, &[count, 1, 1, keys as i32])?),
        bidirectional: None,
        symmetric: None,
        may_be_blind: hides,
        starts: (segments.iter().zip(&tables))
            .map(|(segment, table)| starts(segment, table, cache.block_size))
            .collect(),
    })
}

fn gather_chunk((segment, sight): (&Segment, Sight), group: usize, cache: &KvCache) -> mlx::Result<Gather> {
    let table = table_of(segment, group)?;
    let keys = segment.end() - table.freed_blocks * cache.block_size;
    let sees = Visible::new(segment, (sight, table), group, cache);
    let mask_of = |sees: &dyn Fn(usize, usize) -> bool| {
        let rows = segment.context..segment.end();
        let mask: Vec<bool> =
            rows.flat_map(|position| (0..keys).map(move |key| sees(position, key))).collect();
        Array::from_slice(&mask, &[1, 1, segment.len as i32, keys as i32])
    };
    let hides = sees.first_unattended.is_some();
    let mask = match sees.kind {
        CacheKind::SlidingWindow { .. } => Some(mask_of(&|position, key| sees.is_visible(position, key))?),
        _ if hides => Some(mask_of(&|position, key| sees.is_visible(position, key))?),
        CacheKind::Full | CacheKind::Latent | CacheKind::UnquantizedPrefix { .. } | CacheKind::State => None,
    };
    let ends = sight.ends.and_then(|ends| ends.get(segment.rows()));
    let last = |position: usize| ends.and_then(|ends| ends.get(position - segment.context));
    let sees_later = |position: usize, key: usize| {
        let at = sees.position(key);
        // Rows of a span have one end; others between them have their own.
        position < at
            && sees.attends(at)
            && last(position).is_some_and(|end| at < *end as usize)
            && last(at) == last(position)
    };
    let is_causal =
        (segment.context..segment.end()).all(|row| last(row).is_none_or(|end| *end as usize <= row + 1));
    let bidirectional = match is_causal {
        true => None,
        false => Some(mask_of(&|position, key| sees.is_visible(position, key) || sees_later(position, key))?),
    };
    let symmetric = match (is_causal, sees.kind) {
        (false, CacheKind::SlidingWindow { tokens, .. }) => Some(mask_of(&|position, key| {
            let is_near = sees.position(key) < position + tokens;
            sees.is_visible(position, key) || (sees_later(position, key) && is_near)
        })?),
        _ => None,
    };
    Ok(Gather {
        rows: Rows::of([segment.rows()])?,
        tables: block_indices(&table.blocks)?.expand_dims(&[0])?,
        keys: keys as i32,
        mask,
        bidirectional,
        symmetric,
        may_be_blind: hides,
        starts: vec![starts(segment, table, cache.block_size)],
    })
}

/// Which of the gathered keys the rows of a segment see.
struct Visible<'a> {
    kind: CacheKind,
    block_size: usize,
    table: &'a BlockTable,
    first_unattended: Option<usize>,
}

impl<'a> Visible<'a> {
    fn new(
        segment: &Segment,
        (sight, table): (Sight, &'a BlockTable),
        group: usize,
        cache: &KvCache,
    ) -> Self {
        let kind = cache.groups[group].spec.kind;
        let first_unattended = sight.first_unattended(segment);
        Self { kind, block_size: cache.block_size, table, first_unattended }
    }

    /// True if the query at a position attends to the key at an index of the gathered blocks, among those before it.
    fn is_visible(&self, position: usize, key: usize) -> bool {
        let at = self.position(key);
        self.kind.is_visible(position, at) && self.attends(at)
    }

    /// False of a key that no row attends to.
    fn attends(&self, at: usize) -> bool {
        self.first_unattended.is_none_or(|first| at < first)
    }

    /// The position of the key at an index of the gathered blocks.
    fn position(&self, key: usize) -> usize {
        let is_sink = key < self.table.sink_blocks * self.block_size;
        key + if is_sink { 0 } else { self.table.freed_blocks * self.block_size }
    }
}
