//! What all layers of one pass share: positions, slots, tables and masks, made once.

use mlx::{Array, fast};

use super::parts::{Parts, singles_and_chunks};
use super::slots::SlotStep;
use crate::blocks::Kernels;
use crate::blocks::rotate::Ends;
use crate::state::lost;
use crate::{Batch, GroupKind, KvFormat, KvState, Segment, Table};

/// How rows reach their keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attending {
    /// One kernel writes them to the blocks and reads them there; no pool is ever copied.
    InPlace,
    /// MLX's operations scatter them to the blocks and gather them again. A pool that a step in flight
    /// still reads would be copied, so a step is launched only when the last one is done.
    Gathered,
}

/// One pass's shared inputs.
pub(crate) struct Step {
    pub(crate) attending: Attending,
    /// `[T]` i32.
    pub(crate) positions: Array,
    pub(crate) ends: Ends,
    /// `[n]` i32, at least one.
    pub(crate) logits_at: Option<Array>,
    /// One for each state group.
    pub(crate) groups: Vec<GroupStep>,
}

/// Where one group's layers write and read.
pub(crate) enum GroupStep {
    /// Keys and values of many positions.
    Blocks(BlockStep),
    /// One state.
    Slots(SlotStep),
}

/// Where one group's layers write and read keys and values.
pub(crate) struct BlockStep {
    /// Flat slot of each row's key and value, `[T]` i32. Those of padding and of rows that are stored elsewhere are none,
    /// or, on the reference path, in the scratch block.
    pub(crate) slots: Array,
    /// True if no row is written and none attends.
    pub(crate) is_idle: bool,
    /// For the CPU kernel, `[n, 5]` i32: first row, rows, first position, start of its table, and
    /// which block of the sequence the table begins with.
    pub(crate) segments: Array,
    /// For the CPU kernel, all tables end to end, `[m]` i32.
    pub(crate) tables: Array,
    /// For the reference path: how rows find their keys.
    pub(crate) gathers: Vec<Gather>,
    /// Puts the gathers' rows, end to end and those of an opening behind them, back in the batch's order, `[T]` i32;
    /// `None` if they are.
    pub(crate) order: Option<Array>,
}

/// Rows that attend together in the reference path.
pub(crate) struct Gather {
    /// The rows: consecutive ones of one segment, or single ones of many.
    pub(crate) rows: Rows,
    /// `[n, blocks]` i32, one table a segment, filled up with the scratch block.
    pub(crate) tables: Array,
    /// Keys past this many are cut off.
    pub(crate) keys: i32,
    /// `true` where a row sees a key, `[n, 1, rows, keys]`; `None` is causal.
    pub(crate) mask: Option<Array>,
}

pub(crate) enum Rows {
    Chunk { first: i32, len: i32 },
    Singles(Array),
}

impl Gather {
    pub(crate) fn mask(&self) -> fast::Mask<'_> {
        match &self.mask {
            Some(mask) => fast::Mask::Array(mask),
            None => fast::Mask::Causal,
        }
    }
}

impl Step {
    pub(crate) fn new(
        batch: &Batch,
        state: &KvState,
        attending: Attending,
        kernels: Kernels,
    ) -> mlx::Result<Self> {
        let rows = batch.tokens.shape().first().copied().unwrap_or(0) as usize;
        let mut places: Vec<(usize, usize)> = vec![(0, 1); rows];
        for segment in &batch.segments {
            let range = places.get_mut(segment.first..segment.first + segment.len);
            let range = range.ok_or_else(|| mlx::Error::new("segments lie within the batch"))?;
            for (row, place) in range.iter_mut().enumerate() {
                let position = segment.context + row;
                *place = (position, segment.prompt.max(position + 1));
            }
        }
        let positions: Vec<i32> = places.iter().map(|(position, _)| *position as i32).collect();
        let logits_at: Vec<i32> = batch.logits_at.iter().map(|row| *row as i32).collect();
        let parts = Parts::new(&batch.segments, state.storage.opening.map(|opening| opening.tokens));
        let groups = state.groups.iter().enumerate().map(|(group, of)| match of.kind {
            GroupKind::Full | GroupKind::Window { .. } | GroupKind::Opening { .. } => {
                Ok(GroupStep::Blocks(BlockStep::new(&parts, rows, group, state, attending)?))
            }
            GroupKind::State => Ok(GroupStep::Slots(SlotStep::new(batch, rows, group, state, kernels)?)),
        });
        Ok(Self {
            attending,
            positions: indices(&positions)?,
            logits_at: if logits_at.is_empty() { None } else { Some(indices(&logits_at)?) },
            groups: groups.collect::<mlx::Result<_>>()?,
            ends: Ends(places),
        })
    }
}

impl Step {
    /// The pools of layer `index` that rows are written to or see: which each is, how it stores keys and values, and
    /// where they are.
    pub(crate) fn pools_of(
        &self,
        state: &KvState,
        index: usize,
    ) -> mlx::Result<Vec<(usize, KvFormat, &BlockStep)>> {
        let mut used = Vec::with_capacity(1);
        for at in state.pools_of_layer(index) {
            let group = state.pools.get(at).ok_or_else(lost)?.group;
            match (self.groups.get(group), state.groups.get(group)) {
                (Some(GroupStep::Blocks(blocks)), Some(of)) if !blocks.is_idle => {
                    used.push((at, of.format, blocks));
                }
                (Some(GroupStep::Blocks(_)), Some(_)) => {}
                _ => return Err(lost()),
            }
        }
        Ok(used)
    }

    /// Where the states of layer `index` are.
    pub(crate) fn slots_of(&self, state: &KvState, index: usize) -> mlx::Result<&SlotStep> {
        match state.pools.get(index).and_then(|pool| self.groups.get(pool.group)) {
            Some(GroupStep::Slots(slots)) => Ok(slots),
            Some(GroupStep::Blocks(_)) | None => Err(lost()),
        }
    }
}

impl BlockStep {
    fn new(
        parts: &Parts<'_>,
        rows: usize,
        group: usize,
        state: &KvState,
        attending: Attending,
    ) -> mlx::Result<Self> {
        let size = state.block_size;
        let scratch = state.blocks[group];
        let seen = state.groups[group].seen;
        let nowhere = match attending {
            Attending::InPlace => -1,
            // Rows may meet there: nobody reads the scratch block.
            Attending::Gathered => (scratch * size) as i32,
        };
        let mut slots = vec![nowhere; rows];
        for segment in parts.stored(seen) {
            let table = table_of(segment, group)?;
            for row in 0..segment.len {
                let slot = table.slot(segment.context + row, size, state.kept_blocks(group));
                let slot = slot.filter(|slot| *slot < scratch * size);
                slots[segment.first + row] =
                    slot.ok_or_else(|| mlx::Error::new("a table covers its segment"))? as i32;
            }
        }
        let (mut segments, mut tables) = (Vec::new(), Vec::new());
        for segment in parts.seeing(seen) {
            let table = table_of(segment, group)?;
            let numbers = [segment.first, segment.len, segment.context, tables.len(), table.first];
            segments.extend(numbers.map(|number| number as i32));
            tables.extend(table.blocks.iter().map(|block| *block as i32));
        }
        let (gathers, order) = match attending {
            Attending::InPlace => (Vec::new(), None),
            Attending::Gathered => (gathers(parts.seeing(seen), group, state)?, parts.order(seen, rows)?),
        };
        let count = segments.len() as i32 / 5;
        Ok(Self {
            slots: indices(&slots)?,
            is_idle: parts.stored(seen).is_empty(),
            segments: Array::from_slice(&segments, &[count, 5])?,
            tables: indices(&tables)?,
            gathers,
            order,
        })
    }
}

fn gathers(segments: &[Segment], group: usize, state: &KvState) -> mlx::Result<Vec<Gather>> {
    let (singles, chunks) = singles_and_chunks(segments);
    let mut gathers = Vec::new();
    if !singles.is_empty() {
        gathers.push(gather_singles(&singles, group, state)?);
    }
    for segment in &chunks {
        gathers.push(gather_chunk(segment, group, state)?);
    }
    Ok(gathers)
}

/// Where each row of the batch is when these segments' rows are laid end to end; `None` if just there.
pub(super) fn order_of<'a>(
    segments: impl Iterator<Item = &'a Segment>,
    rows: usize,
) -> mlx::Result<Option<Array>> {
    let mut order = vec![0; rows];
    let mut next = 0;
    for segment in segments {
        for place in order.iter_mut().skip(segment.first).take(segment.len) {
            *place = next;
            next += 1;
        }
    }
    let in_order = order.iter().enumerate().all(|(row, place)| row as i32 == *place);
    Ok(if in_order { None } else { Some(indices(&order)?) })
}

fn gather_singles(segments: &[&Segment], group: usize, state: &KvState) -> mlx::Result<Gather> {
    let tables = segments.iter().map(|segment| table_of(segment, group)).collect::<mlx::Result<Vec<_>>>()?;
    let width = tables.iter().map(|table| table.blocks.len()).max().unwrap_or(0);
    let scratch = state.blocks[group] as i32;
    let padded: Vec<i32> = tables
        .iter()
        .flat_map(|table| (0..width).map(|i| table.blocks.get(i).map_or(scratch, |block| *block as i32)))
        .collect();
    let keys = width * state.block_size;
    let mask: Vec<bool> = segments
        .iter()
        .zip(&tables)
        .flat_map(|(segment, table)| {
            (0..keys).map(move |key| sees(segment.context, key, table, state, group))
        })
        .collect();
    let rows: Vec<i32> = segments.iter().map(|segment| segment.first as i32).collect();
    let count = segments.len() as i32;
    Ok(Gather {
        rows: Rows::Singles(indices(&rows)?),
        tables: Array::from_slice(&padded, &[count, width as i32])?,
        keys: keys as i32,
        mask: Some(Array::from_slice(&mask, &[count, 1, 1, keys as i32])?),
    })
}

fn gather_chunk(segment: &Segment, group: usize, state: &KvState) -> mlx::Result<Gather> {
    let table = table_of(segment, group)?;
    let blocks: Vec<i32> = table.blocks.iter().map(|block| *block as i32).collect();
    let keys = segment.end() - table.first * state.block_size;
    let mask = match state.kind(group) {
        Some(GroupKind::Window { .. }) => {
            let mask: Vec<bool> = (segment.context..segment.end())
                .flat_map(|position| (0..keys).map(move |key| sees(position, key, table, state, group)))
                .collect();
            Some(Array::from_slice(&mask, &[1, 1, segment.len as i32, keys as i32])?)
        }
        Some(GroupKind::Full | GroupKind::Opening { .. } | GroupKind::State) | None => None,
    };
    Ok(Gather {
        rows: Rows::Chunk { first: segment.first as i32, len: segment.len as i32 },
        tables: Array::from_slice(&blocks, &[1, blocks.len() as i32])?,
        keys: keys as i32,
        mask,
    })
}

/// Whether the query at `position` sees the key in place `key` of a table's blocks.
fn sees(position: usize, key: usize, table: &Table, state: &KvState, group: usize) -> bool {
    let kept = state.kept_blocks(group) * state.block_size;
    let missing = if key < kept { 0 } else { table.first * state.block_size };
    state.sees(group, position, key + missing)
}

pub(super) fn table_of(segment: &Segment, group: usize) -> mlx::Result<&Table> {
    segment.tables.get(group).ok_or_else(|| mlx::Error::new("one table for each group"))
}

pub(super) fn indices(values: &[i32]) -> mlx::Result<Array> {
    Array::from_slice(values, &[values.len() as i32])
}
