//! Where the attention layers of one cache group read and write keys and values in one pass.

use mlx::Array;
use omnibus_kv::CacheKind;

use super::axes::AxisPositions;
use super::gather::{Gather, chunk_gathers, gathers};
use super::items::Items;
use super::kv_path::AttentionPath;
use super::row_split::RowSplit;
use super::rows::{indices, table_of};
use crate::batch::Segment;
use crate::kv_cache::KvCache;

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
    /// For each row the position behind the last key that it sees where attention is bidirectional, `[T]` i32, equal for those of a span; `None` if no
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

impl AttentionMetadata {
    /// `positions`: of all rows of the pass, and those in time, height and width where rows rotate by these.
    pub(super) fn new(
        split: &RowSplit<'_>,
        (positions, axes): (&[i32], Option<&AxisPositions>),
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
                let axes = axes.map_or(&[][..], |axes| &axes.numbers);
                let mut items = Items::new(reading, [positions, axes, &slots], group, kind)?;
                if kind == CacheKind::Latent {
                    items.gathers = chunk_gathers(reading, group, cache)?;
                }
                AttentionReads::Items(Box::new(items))
            }
            AttentionPath::Gather => AttentionReads::Gather(GatheredRows {
                slots: indices(&slots)?,
                gathers: gathers((reading, split.sight()), group, cache)?,
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
