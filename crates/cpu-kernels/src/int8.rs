//! Products of 4- and 8-bit weights with rows in 8 bits: integer dot products over blocks of 32, scaled in f32.
//!
//! Invariant: a row's bits depend on that row and the weights only. Sums of a block are exact; blocks follow one
//! another in the order of K, whichever rows and columns share a tile (see [`product`]).

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::element::{Input, Output, store_columns};
use super::gemm::{Format, K_BLOCK};
use super::pool;
use super::simd::Simd;
use super::simd::dot::{self, Dot, DotIsa, DotWork};
use super::weights::{Source, Stage};

mod product;
mod rows;
#[cfg(test)]
mod tests;

use product::{COLUMN_VECTORS, Fill, Panel, Tile};
use rows::PackedRows;

/// Most rows that are computed together.
const PART: usize = 516;

/// Packed words at a time; more rows than fit go in waves.
const WAVE: usize = 4 << 20;

/// Products that are too small for a second thread, in multiplications.
const SMALL: usize = 1 << 17;

thread_local! {
    /// Packed rows of the call in progress. Kept, since fresh pages would cost as much as small products.
    static PACKED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Rows that are computed together.
#[derive(Clone, Copy)]
struct Part<'a> {
    source: Source,
    /// Row of x and row of the output.
    rows: &'a [(usize, usize)],
    packed: PackedRows,
}

// SAFETY: tasks pack, and later write, disjoint rows or columns.
unsafe impl Sync for Part<'_> {}

/// A product with weights of 4 or 8 bits.
pub(super) struct Product {
    /// Of the first expert.
    pub source: Source,
    pub group: usize,
    /// Rows of x and of the output, for each expert.
    pub by_expert: Vec<Vec<(usize, usize)>>,
    pub x: Input,
    pub out: Output,
}

impl Product {
    /// # Safety
    /// The weights are those of `F`, the buffers have their sizes, and the machine has `isa`.
    pub(super) unsafe fn run<F: Format>(&self, isa: DotIsa) {
        let shape = (self.source.k, self.group);
        let tile_rows = rows::tile_rows(isa.many_registers());
        let mut parts = self
            .by_expert
            .iter()
            .enumerate()
            .flat_map(|(expert, rows)| rows.chunks(PART).map(move |rows| (expert, rows)))
            .peekable();
        PACKED.with_borrow_mut(|buffer| {
            while parts.peek().is_some() {
                let (mut wave, mut used) = (Vec::new(), 0);
                let size = |rows: &[_]| PackedRows::words(rows.len(), tile_rows, shape);
                while let Some((expert, rows)) =
                    parts.next_if(|(_, rows)| used == 0 || used + size(rows) <= WAVE)
                {
                    wave.push((expert, rows, used));
                    used += size(rows);
                }
                buffer.clear();
                buffer.reserve(used);
                let base = buffer.as_mut_ptr();
                let wave: Vec<_> = wave
                    .into_iter()
                    .map(|(expert, rows, at)| Part {
                        source: self.source.expert(expert),
                        rows,
                        packed: PackedRows::new(base.add(at), rows.len(), tile_rows, shape),
                    })
                    .collect();
                pack_wave::<F>(isa, &wave, self.x);
                multiply_wave::<F>(isa, &wave, self.out);
            }
        })
    }
}

unsafe fn pack_wave<F: Format>(isa: DotIsa, wave: &[Part], x: Input) {
    let tiles: Vec<_> = wave
        .iter()
        .flat_map(|part| (0..part.rows.len()).step_by(part.packed.tile_rows).map(move |first| (part, first)))
        .collect();
    let elements: usize = wave.iter().map(|part| part.rows.len() * part.source.k).sum();
    let pack = |i: usize| {
        let (part, first): (&Part, usize) = tiles[i];
        let (packed, rows) = (part.packed, part.rows);
        // SAFETY: tiles are disjoint.
        unsafe { dot::with(isa, rows::Pack::<F> { packed, rows, x, first, format: PhantomData }) }
    };
    if elements <= SMALL / 4 { (0..tiles.len()).for_each(pack) } else { pool::run(tiles.len(), pack) }
}

unsafe fn multiply_wave<F: Format>(isa: DotIsa, wave: &[Part], out: Output) {
    let span = COLUMN_VECTORS * isa.lanes();
    // All parts have the same n and k.
    let Some(Source { n, k, .. }) = wave.first().map(|part| part.source) else { return };
    let spans = n.div_ceil(span);
    let work: usize = wave.iter().map(|part| part.rows.len() * n * k).sum();
    let per_task = match work <= SMALL {
        true => spans,
        false => (spans * wave.len() / (pool::threads() * 16)).clamp(1, 32),
    };
    let tasks = spans.div_ceil(per_task);
    pool::run(tasks * wave.len(), |i| {
        let (part, first) = (&wave[i / tasks], i % tasks * per_task * span);
        let columns = first..(first + per_task * span).min(n);
        // SAFETY: tasks differ in part or columns; the packed rows are ready.
        unsafe { dot::with(isa, Columns::<F> { part, columns, out, format: PhantomData }) }
    });
}

/// All rows of a part with some columns.
struct Columns<'a, F> {
    part: &'a Part<'a>,
    columns: Range<usize>,
    out: Output,
    format: PhantomData<F>,
}

#[repr(C, align(64))]
struct Scratch {
    panel: Panel,
    totals: [f32; PART * COLUMN_VECTORS * 16],
}

impl<F: Format> DotWork for Columns<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        let mut scratch = MaybeUninit::<Scratch>::uninit();
        let mut stage = MaybeUninit::<Stage>::uninit();
        let panel = &raw mut (*scratch.as_mut_ptr()).panel;
        let totals = (&raw mut (*scratch.as_mut_ptr()).totals).cast::<f32>();
        let Part { source, rows, packed } = *self.part;
        let (lanes, span) = (D::S::LANES, COLUMN_VECTORS * D::S::LANES);
        if source.k == 0 {
            std::ptr::write_bytes(totals, 0, rows.len() * span);
        }
        for n in self.columns.clone().step_by(span) {
            for from in (0..source.k).step_by(K_BLOCK) {
                let width = K_BLOCK.min(source.k - from);
                for v in 0..COLUMN_VECTORS {
                    let first = n + v * lanes;
                    let tile = match first < source.n {
                        true => Some(source.tile::<D::S, F>(first, from, stage.as_mut_ptr())),
                        false => None,
                    };
                    D::call(Fill::<F> { panel, v, tile, width, format: PhantomData });
                }
                for first in (0..rows.len()).step_by(packed.tile_rows) {
                    let x = packed.tile(first, from);
                    let sums = totals.add(first * span);
                    product::multiply::<D, F>(Tile { x, panel, from, width, group: packed.group, sums });
                }
            }
            self.store::<D>(n, totals);
        }
    }
}

impl<F: Format> Columns<'_, F> {
    /// Writes the totals of the columns from `n` on.
    #[inline(always)]
    unsafe fn store<D: Dot>(&self, n: usize, totals: *const f32) {
        let (lanes, end) = (D::S::LANES, self.part.source.n);
        for (r, row) in self.part.rows.iter().enumerate() {
            for v in (0..COLUMN_VECTORS).filter(|v| n + v * lanes < end) {
                let total = D::S::load(totals.add((r * COLUMN_VECTORS + v) * lanes));
                store_columns::<D::S>(self.out, row.1 * end, n + v * lanes, end, total);
            }
        }
    }
}
