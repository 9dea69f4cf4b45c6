//! Where the attention layers of one cache group read and write keys and values in one pass.

use mlx::{Array, fast};
use omnibus_kv::{BlockId, BlockTable, CacheKind};

use super::items::Items;
use super::kv_path::AttentionPath;
use super::row_split::RowSplit;
use super::rows::{Rows, indices, singles_and_chunks, table_of};
use crate::kv_cache::block_indices;
use crate::{Bidirectional, KvCache, Segment};

/// What the attention layers of one group read and write.
pub(crate) struct AttentionMetadata {
    /// True if no row is written and none attends.
    pub(crate) is_idle: bool,
    pub(crate) reads: AttentionReads,
}

/// How rows find their keys and values, one for each [`AttentionPath`].
pub(crate) enum AttentionReads {
    Segments(SegmentTables),
    Items(Box<Items>),
    Gather(GatheredRows),
}

/// For the CPU's paged kernel.
pub(crate) struct SegmentTables {
    /// Flat slot of each row's key and value, `[T]` i32; −1 for rows that are not written (padding, and rows outside an
    /// unquantized prefix).
    pub(crate) slots: Array,
    /// `[n, 5]` i32: first row, rows, first position, start of the segment's table, and how many blocks of the sequence
    /// the window has freed.
    pub(crate) segments: Array,
    /// All block tables end to end, `[m]` i32.
    pub(crate) tables: Array,
    /// For each row the position behind the last key that it sees where attention is bidirectional, `[T]` i32; `None` if no
    /// row sees a later one.
    pub(crate) ends: Option<Array>,
}

/// For MLX's operations.
pub(crate) struct GatheredRows {
    /// Flat slot of each row's key and value, `[T]` i32; in the scratch block for rows that are not written.
    pub(crate) slots: Array,
    /// Which keys each group of rows gathers.
    pub(crate) gathers: Vec<Gather>,
    /// Puts the gathers' rows, end to end and those of an unquantized prefix after them, back in the batch's order,
    /// `[T]` i32; `None` if they are in order.
    pub(crate) order: Option<Array>,
}

/// Rows that attend in one call on the gather path.
pub(crate) struct Gather {
    pub(crate) rows: Rows,
    /// `[n, blocks]` i32, one block table a segment, padded with the scratch block.
    pub(crate) tables: Array,
    /// Gathered keys past this many are cut off.
    pub(crate) keys: i32,
    /// `true` where a row attends to a key, `[n, 1, rows, keys]`; `None` is causal.
    pub(crate) mask: Option<Array>,
    /// The same where attention is bidirectional; `None` if no row sees a later key.
    bidirectional: Option<Array>,
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
            Bidirectional::Pictures | Bidirectional::Prompts => self.bidirectional.as_ref(),
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

impl AttentionMetadata {
    /// `positions`: of all rows of the pass.
    pub(super) fn new(
        split: &RowSplit<'_>,
        positions: &[i32],
        group: usize,
        cache: &KvCache,
        path: AttentionPath,
    ) -> mlx::Result<Self> {
        let visible = cache.groups[group].visible_to;
        let (written, reading, rows) = (split.written(visible), split.reading(visible), positions.len());
        let slots = slots(written, rows, group, cache, path)?;
        let reads = match path {
            AttentionPath::Segments => {
                AttentionReads::Segments(SegmentTables::new(&slots, (reading, split.ends()), group)?)
            }
            AttentionPath::Items => {
                let kind = cache.spec(group)?.kind;
                AttentionReads::Items(Box::new(Items::new(reading, [positions, &slots], group, kind)?))
            }
            AttentionPath::Gather => AttentionReads::Gather(GatheredRows {
                slots: indices(&slots)?,
                gathers: gathers((reading, split.ends()), group, cache)?,
                order: split.order(visible, rows)?,
            }),
        };
        Ok(Self { is_idle: written.is_empty(), reads })
    }
}

impl SegmentTables {
    fn new(slots: &[i32], (reading, ends): (&[Segment], Option<&[i32]>), group: usize) -> mlx::Result<Self> {
        let (mut segments, mut tables) = (Vec::new(), Vec::new());
        for segment in reading {
            let table = table_of(segment, group)?;
            let numbers = [segment.first, segment.len, segment.context, tables.len(), table.freed_blocks];
            segments.extend(numbers.map(|number| number as i32));
            tables.extend(table.blocks.iter().map(|block| block.0 as i32));
        }
        let count = segments.len() as i32 / 5;
        let segments = Array::from_slice(&segments, &[count, 5])?;
        let ends = ends.map(indices).transpose()?;
        Ok(Self { slots: indices(slots)?, segments, tables: indices(&tables)?, ends })
    }
}

/// The flat slot that each row's key and value are written to.
fn slots(
    written: &[Segment],
    rows: usize,
    group: usize,
    cache: &KvCache,
    path: AttentionPath,
) -> mlx::Result<Vec<i32>> {
    let size = cache.block_size;
    let scratch = cache.blocks[group] * size;
    let unwritten = match path {
        AttentionPath::Segments | AttentionPath::Items => -1,
        // Several rows may write there: the scratch block is never read.
        AttentionPath::Gather => scratch as i32,
    };
    let mut slots = vec![unwritten; rows];
    for segment in written {
        let table = table_of(segment, group)?;
        for row in 0..segment.len {
            let slot = table.slot(segment.context + row, size);
            let slot = slot.filter(|slot| *slot < scratch);
            slots[segment.first + row] =
                slot.ok_or_else(|| mlx::Error::new("a block table covers its segment"))? as i32;
        }
    }
    Ok(slots)
}

fn gathers(
    (segments, ends): (&[Segment], Option<&[i32]>),
    group: usize,
    cache: &KvCache,
) -> mlx::Result<Vec<Gather>> {
    let (singles, chunks) = singles_and_chunks(segments);
    let mut gathers = Vec::new();
    if !singles.is_empty() {
        gathers.push(gather_singles(&singles, group, cache)?);
    }
    for segment in &chunks {
        gathers.push(gather_chunk((segment, ends), group, cache)?);
    }
    Ok(gathers)
}

fn gather_singles(segments: &[&Segment], group: usize, cache: &KvCache) -> mlx::Result<Gather> {
    let tables = segments.iter().map(|segment| table_of(segment, group)).collect::<mlx::Result<Vec<_>>>()?;
    let width = tables.iter().map(|table| table.blocks.len()).max().unwrap_or(0);
    let scratch = BlockId(cache.blocks[group] as u32);
    let padded: Vec<BlockId> = tables
        .iter()
        .flat_map(|table| (0..width).map(|i| table.blocks.get(i).copied().unwrap_or(scratch)))
        .collect();
    let (kind, keys) = (cache.spec(group)?.kind, width * cache.block_size);
    let mask: Vec<bool> = segments
        .iter()
        .zip(&tables)
        .flat_map(|(segment, table)| {
            (0..keys).map(move |key| is_visible(kind, cache.block_size, table, (segment.context, key)))
        })
        .collect();
    let count = segments.len() as i32;
    Ok(Gather {
        rows: Rows::of(segments.iter().map(|segment| segment.rows()))?,
        tables: block_indices(&padded)?.reshape(&[count, width as i32])?,
        keys: keys as i32,
        mask: Some(Array::from_slice(&mask, &[count, 1, 1, keys as i32])?),
        bidirectional: None,
        starts: (segments.iter().zip(&tables))
            .map(|(segment, table)| starts(segment, table, cache.block_size))
            .collect(),
    })
}

fn gather_chunk(
    (segment, ends): (&Segment, Option<&[i32]>),
    group: usize,
    cache: &KvCache,
) -> mlx::Result<Gather> {
    let table = table_of(segment, group)?;
    let keys = segment.end() - table.freed_blocks * cache.block_size;
    let kind = cache.spec(group)?.kind;
    let visible = |at| is_visible(kind, cache.block_size, table, at);
    let mask_of = |sees: &dyn Fn(usize, usize) -> bool| {
        let rows = segment.context..segment.end();
        let mask: Vec<bool> =
            rows.flat_map(|position| (0..keys).map(move |key| sees(position, key))).collect();
        Array::from_slice(&mask, &[1, 1, segment.len as i32, keys as i32])
    };
    let mask = match kind {
        CacheKind::SlidingWindow { .. } => Some(mask_of(&|position, key| visible((position, key)))?),
        CacheKind::Full | CacheKind::Latent | CacheKind::UnquantizedPrefix { .. } | CacheKind::State => None,
    };
    let ends = ends.and_then(|ends| ends.get(segment.rows()));
    let last = |position: usize| ends.and_then(|ends| ends.get(position - segment.context));
    let sees_later = |position: usize, key: usize| {
        let at = key_position(cache.block_size, table, key);
        position < at && last(position).is_some_and(|end| at < *end as usize)
    };
    let is_causal =
        (segment.context..segment.end()).all(|row| last(row).is_none_or(|end| *end as usize <= row + 1));
    let bidirectional = match is_causal {
        true => None,
        false => Some(mask_of(&|position, key| visible((position, key)) || sees_later(position, key))?),
    };
    Ok(Gather {
        rows: Rows::of([segment.rows()])?,
        tables: block_indices(&table.blocks)?.expand_dims(&[0])?,
        keys: keys as i32,
        mask,
        bidirectional,
        starts: vec![starts(segment, table, cache.block_size)],
    })
}

/// True if the query at a position attends to the key at an index of the gathered blocks, `(position, key)`.
fn is_visible(
    kind: CacheKind,
    block_size: usize,
    table: &BlockTable,
    (position, key): (usize, usize),
) -> bool {
    kind.is_visible(position, key_position(block_size, table, key))
}

/// The position of the key at an index of the gathered blocks.
fn key_position(block_size: usize, table: &BlockTable, key: usize) -> usize {
    let is_sink = key < table.sink_blocks * block_size;
    key + if is_sink { 0 } else { table.freed_blocks * block_size }
}
