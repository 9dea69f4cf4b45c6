//! Where rows read and write keys and values, as attention kernels on a GPU read it: rows that decode are items of one
//! row, as those of short chunks are, longer prompt chunks are items of several, and everything is copied to the device at
//! once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use mlx::Array;
use mlx::gpu::{ITEM_FIELDS, copy_to_device, host_numbers, upload};
use omnibus_kv::CacheKind;

use super::gather::Gather;
use super::rows::table_of;
use super::short_chunks::ShortChunks;
use crate::batch::Segment;
use crate::take_rows::take_rows;

/// Items of attention on the device, see [`ITEM_FIELDS`].
#[derive(Clone)]
pub(crate) struct ItemList {
    /// `[8 · count or more]` i32.
    pub(crate) array: Array,
    pub(crate) count: i32,
}

/// The reads and writes of one cache group in one pass. All arrays are i32 and in the device's memory.
pub(crate) struct Items {
    /// Everything but the items of chunks, in the host's memory and in the device's.
    numbers: Numbers,
    /// Rows of the pass, padding included.
    pub(crate) rows: i32,
    /// `[rows or more]`.
    pub(crate) positions: Array,
    /// Positions in time, height and width, `[3 · rows or more]`; empty where rows rotate by their place in their sequence.
    pub(crate) axes: Array,
    /// `[rows or more]`: flat slot of each row's key and value, below zero for rows that are not written.
    pub(crate) slots: Array,
    /// All block tables end to end.
    pub(crate) tables: Array,
    /// Rows that decode, those of short chunks, and where no row is of a longer one, all rows that read nothing.
    pub(crate) decode: Option<ItemList>,
    /// Chunks in order, where MLX's operations compute them: those of latents.
    pub(crate) gathers: Vec<Gather>,
    /// Keys of the decoding row with the most, rounded up to a power of two.
    pub(crate) longest: i32,
    layout: ItemLayout,
    /// Items of chunks by the rows of an item, made where a layer first needs them.
    chunks: RefCell<BTreeMap<i32, ItemList>>,
}

/// Numbers of a pass, `[n]` i32.
#[derive(Clone)]
pub(crate) struct Numbers {
    pub(crate) host: Array,
    /// A lazy copy.
    pub(crate) device: Array,
}

/// Rows by what they read.
#[derive(Debug, Default, PartialEq, Eq)]
struct ItemLayout {
    singles: Vec<Part>,
    chunks: Vec<Part>,
    /// Padding, and rows that read another pool.
    unread: Vec<Range<usize>>,
}

/// Rows of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    first: usize,
    rows: usize,
    position: usize,
    table: usize,
    freed: usize,
}

/// Sections begin at multiples of this many numbers, which keeps them apart from what Metal passes as constants.
const ALIGNMENT: usize = 64;

impl Items {
    /// `reading`: the segments that read the group; `positions`, `slots`: of all rows of the pass; `axes`: positions in time,
    /// height and width, end to end, or nothing.
    pub(super) fn new(
        reading: &[Segment],
        [positions, axes, slots]: [&[i32]; 3],
        group: usize,
        kind: CacheKind,
    ) -> mlx::Result<Self> {
        let rows = slots.len();
        let (layout, tables) = ItemLayout::new(reading, rows, group, ShortChunks::of_device())?;
        let items = layout.decode_items();
        let count = (items.len() / ITEM_FIELDS) as i32;
        let mut numbers = Vec::new();
        let mut sections = [0..0, 0..0, 0..0, 0..0, 0..0];
        for (section, part) in sections.iter_mut().zip([positions, axes, slots, &items, &tables]) {
            let start = numbers.len();
            numbers.extend(part);
            numbers.resize((start + part.len().max(1)).next_multiple_of(ALIGNMENT), 0);
            *section = start..numbers.len();
        }
        // Few lengths, so that block tables may grow before a prebuilt graph no longer fits.
        let host = host_numbers(&numbers, numbers.len().next_power_of_two())?;
        let numbers = Numbers { device: copy_to_device(&host)?, host };
        let [positions, axes, slots, items, tables] = sections.map(|section| {
            let (start, stop) = (section.start as i32, section.end as i32);
            numbers.device.slice(&[start], &[stop])
        });
        let decode = if count > 0 { Some(ItemList { array: items?, count }) } else { None };
        let keys = |part: &Part| match kind {
            CacheKind::SlidingWindow { tokens, sinks } => (part.position + 1).min(tokens + sinks),
            _ => part.position + 1,
        };
        Ok(Self {
            rows: rows as i32,
            positions: positions?,
            axes: axes?,
            slots: slots?,
            tables: tables?,
            decode,
            gathers: Vec::new(),
            // It decides how many groups share the keys of a row: few values, for the same reason.
            longest: layout.singles.iter().map(keys).max().unwrap_or(1).next_power_of_two() as i32,
            numbers,
            layout,
            chunks: RefCell::default(),
        })
    }

    /// The numbers of a pass without chunks: all that differs from another one with the same [`shape`](Self::shape).
    pub(crate) fn numbers_of_decode(&self) -> Option<&Numbers> {
        self.layout.chunks.is_empty().then_some(&self.numbers)
    }

    /// Sizes that launches depend on.
    pub(crate) fn shape(&self) -> [i32; 3] {
        let numbers = self.numbers.host.size() as i32;
        [numbers, self.longest, self.decode.as_ref().map_or(0, |decode| decode.count)]
    }

    /// What decoding rows computed, `[rows, width]`, with the rows of chunks in their places. `chunks`: of the
    /// [gathers](Self::gathers), `[len, width]` each.
    pub(crate) fn merged(&self, decoded: Option<Array>, chunks: Vec<Array>) -> mlx::Result<Array> {
        let decoded = match (decoded, chunks.is_empty()) {
            (Some(decoded), true) => return Ok(decoded),
            (decoded, _) => decoded,
        };
        let order = self.layout.merged_order(if decoded.is_some() { self.rows } else { 0 });
        let parts: Vec<&Array> = decoded.iter().chain(&chunks).collect();
        let order = upload(&order)?.slice(&[0], &[self.rows])?;
        take_rows(&mlx::concatenate(&parts, 0)?, &order)
    }

    /// Items of up to `most` rows for a kernel that computes chunks and copies what decoding rows have; `None` if no row
    /// is of a chunk.
    pub(crate) fn chunks(&self, most: i32) -> mlx::Result<Option<ItemList>> {
        if self.layout.chunks.is_empty() {
            return Ok(None);
        }
        let mut made = self.chunks.borrow_mut();
        if let Some(items) = made.get(&most) {
            return Ok(Some(items.clone()));
        }
        let items = self.layout.chunk_items(most.max(1) as usize);
        // A kernel whose groups take turns reads from the shape how many there are: without what pads them.
        let array = upload(&items)?.slice(&[0], &[items.len() as i32])?;
        let list = ItemList { array, count: (items.len() / ITEM_FIELDS) as i32 };
        made.insert(most, list.clone());
        Ok(Some(list))
    }
}

impl ItemLayout {
    /// The layout of a pass of `rows` rows, and the block tables end to end.
    fn new(
        reading: &[Segment],
        rows: usize,
        group: usize,
        short: ShortChunks,
    ) -> mlx::Result<(Self, Vec<i32>)> {
        let (mut layout, mut tables) = (Self::default(), Vec::new());
        let mut is_read = vec![false; rows];
        for segment in reading {
            let table = table_of(segment, group)?;
            let part = Part {
                first: segment.first,
                rows: segment.len,
                position: segment.context,
                table: tables.len(),
                freed: table.freed_blocks,
            };
            tables.extend(table.blocks.iter().map(|block| block.0 as i32));
            let range = is_read.get_mut(part.first..part.first + part.rows);
            range.ok_or_else(|| mlx::Error::new("segments lie within the batch"))?.fill(true);
            if short.is_chunk(segment) {
                layout.chunks.push(part);
            } else {
                let rows = 0..part.rows;
                let row =
                    |row| Part { first: part.first + row, rows: 1, position: part.position + row, ..part };
                layout.singles.extend(rows.map(row));
            }
        }
        layout.unread = runs((0..rows).filter(|row| !is_read.get(*row).copied().unwrap_or(true)));
        Ok((layout, tables))
    }

    /// Where each row is among what decoding rows computed, `decoded` of them, and the rows of chunks behind them. Rows that
    /// read nothing take those of a chunk.
    fn merged_order(&self, decoded: i32) -> Vec<i32> {
        let rows = self.singles.iter().chain(&self.chunks).map(|part| part.first + part.rows);
        let rows = rows.chain(self.unread.iter().map(|run| run.end)).max().unwrap_or(0);
        let mut order = vec![decoded; rows];
        for part in &self.singles {
            order[part.first] = part.first as i32;
        }
        let mut at = decoded;
        for part in &self.chunks {
            for place in &mut order[part.first..part.first + part.rows] {
                *place = at;
                at += 1;
            }
        }
        order
    }

    fn decode_items(&self) -> Vec<i32> {
        let singles = self.singles.iter().flat_map(|part| item(part, Kind::Attend));
        if !self.chunks.is_empty() {
            return singles.collect();
        }
        let unread = self.unread.iter().cloned().flatten();
        singles.chain(unread.flat_map(|row| item_of_rows(&(row..row + 1), Kind::Zero))).collect()
    }

    fn chunk_items(&self, most: usize) -> Vec<i32> {
        let split = |part: &Part| {
            let part = *part;
            (0..part.rows).step_by(most).map(move |from| Part {
                first: part.first + from,
                rows: most.min(part.rows - from),
                position: part.position + from,
                ..part
            })
        };
        let mut parts: Vec<Part> = self.chunks.iter().flat_map(split).collect();
        // What takes longest begins first, so that all of the GPU ends together.
        parts.sort_by_key(|part| std::cmp::Reverse(part.position));
        let copied = runs(self.singles.iter().map(|part| part.first));
        let cut = |run: &Range<usize>| {
            let run = run.clone();
            run.clone().step_by(most).map(move |first| first..run.end.min(first + most)).collect::<Vec<_>>()
        };
        let attended = parts.iter().flat_map(|part| item(part, Kind::Attend));
        let copied = copied.iter().flat_map(cut).flat_map(|rows| item_of_rows(&rows, Kind::Copy));
        let unread = self.unread.iter().flat_map(cut).flat_map(|rows| item_of_rows(&rows, Kind::Zero));
        attended.chain(copied).chain(unread).collect()
    }
}

/// What happens to the rows of an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Attend,
    /// They attend to nothing.
    Zero,
    /// Another kernel has computed them.
    Copy,
}

fn item_of_rows(rows: &Range<usize>, kind: Kind) -> [i32; ITEM_FIELDS] {
    item(&Part { first: rows.start, rows: rows.len(), position: 0, table: 0, freed: 0 }, kind)
}

fn item(part: &Part, kind: Kind) -> [i32; ITEM_FIELDS] {
    let position = if kind == Kind::Zero { -(part.rows as i32) } else { part.position as i32 };
    let numbers = [part.first as i32, part.rows as i32, position, part.table as i32, part.freed as i32];
    let [first, rows, position, table, freed] = numbers;
    [first, rows, position, table, freed, i32::from(kind == Kind::Copy), 0, 0]
}

/// Consecutive numbers together.
fn runs(numbers: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use omnibus_kv::{BlockId, BlockTable};

    use super::*;

    fn segment(first: usize, len: usize, context: usize, blocks: &[u32]) -> Segment {
        let blocks = blocks.iter().copied().map(BlockId).collect();
        let table = BlockTable { freed_blocks: 2, sink_blocks: 0, blocks };
        Segment { first, len, context, prompt: 0, samples: 0, adapter: None, tables: vec![table] }
    }

    fn fields(items: &[i32]) -> Vec<&[i32]> {
        items.chunks_exact(ITEM_FIELDS).map(|item| &item[..6]).collect()
    }

    #[test]
    fn decoding_rows_and_padding_are_items_of_one_row() {
        let segments = [segment(0, 1, 40, &[7, 3]), segment(1, 1, 33, &[5])];
        let (layout, tables) = ItemLayout::new(&segments, 4, 0, ShortChunks::Together).unwrap();
        assert_eq!(tables, [7, 3, 5]);
        assert_eq!(
            fields(&layout.decode_items()),
            [[0, 1, 40, 0, 2, 0], [1, 1, 33, 2, 2, 0], [2, 1, -1, 0, 0, 0], [3, 1, -1, 0, 0, 0]]
        );
        assert!(layout.chunks.is_empty());
    }

    #[test]
    fn a_mixed_pass_computes_chunks_and_copies_decoding_rows() {
        let segments = [segment(0, 1, 40, &[7, 3]), segment(1, 1, 33, &[5]), segment(2, 5, 32, &[1, 2])];
        let (layout, _) = ItemLayout::new(&segments, 8, 0, ShortChunks::Together).unwrap();
        assert_eq!(fields(&layout.decode_items()), [[0, 1, 40, 0, 2, 0], [1, 1, 33, 2, 2, 0]]);
        let chunks = layout.chunk_items(2);
        let expected = [
            [6, 1, 36, 3, 2, 0],
            [4, 2, 34, 3, 2, 0],
            [2, 2, 32, 3, 2, 0],
            [0, 2, 0, 0, 0, 1],
            [7, 1, -1, 0, 0, 0],
        ];
        assert_eq!(fields(&chunks), expected);
    }

    #[test]
    fn chunks_that_were_computed_elsewhere_take_their_places() {
        let segments = [segment(0, 1, 40, &[7, 3]), segment(1, 3, 33, &[5]), segment(4, 2, 32, &[1, 2])];
        let (layout, _) = ItemLayout::new(&segments, 8, 0, ShortChunks::Together).unwrap();
        assert_eq!(layout.merged_order(8), [0, 8, 9, 10, 11, 12, 8, 8]);
        let (layout, _) = ItemLayout::new(&segments[1..], 8, 0, ShortChunks::Together).unwrap();
        assert_eq!(layout.merged_order(0), [0, 0, 1, 2, 3, 4, 0, 0]);
    }

    #[test]
    fn rows_of_a_short_chunk_are_items_of_their_own() {
        let segments = [segment(0, 1, 40, &[7, 3]), segment(1, 3, 33, &[5])];
        let (layout, tables) = ItemLayout::new(&segments, 4, 0, ShortChunks::RowByRow).unwrap();
        assert_eq!(tables, [7, 3, 5]);
        let rows = [[0, 1, 40, 0, 2, 0], [1, 1, 33, 2, 2, 0], [2, 1, 34, 2, 2, 0], [3, 1, 35, 2, 2, 0]];
        assert_eq!(fields(&layout.decode_items()), rows);
        assert!(layout.chunks.is_empty());
    }

    #[test]
    fn a_segment_outside_the_batch_is_an_error() {
        assert!(ItemLayout::new(&[segment(3, 2, 0, &[1])], 4, 0, ShortChunks::Together).is_err());
    }
}
