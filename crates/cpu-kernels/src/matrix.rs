//! Products with dense weights by a CPU's matrix unit (AMX): tiles of bf16, summed in f32.
//!
//! An f32 value is the sum of three bf16 values, its parts: 8 bits of its 24 each. A product of two values is the sum of
//! the six products of their parts that are not below an f32's last bit. Weights in bf16 have one part.
//!
//! Invariant: a row's bits depend on that row and the weights only. They are not those of [`linear`](super::linear).

mod pack;
mod tiles;

use std::cell::RefCell;
use std::sync::OnceLock;

use super::element::{Input, Output, store_columns};
use super::gemm::Merge;
use super::pool;
use super::simd::{self, Isa, Simd, Work};
use super::weights::Source;
use pack::{PackedRows, Panel};
use tiles::Tiles;

/// Whether the machine has the unit, and the system lets this process use it.
pub(super) fn is_usable() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    simd::isa() == Isa::Avx512 && *ENABLED.get_or_init(tiles::enable)
}

/// Rows and columns of a tile of results.
const TILE: usize = 16;
/// Elements of K that a tile of rows holds.
const STEP: usize = 32;
/// Bytes of a tile.
const TILE_BYTES: usize = 1024;
/// Steps that are multiplied before the next rows come: a panel of weights is then 48 KB.
const STEPS: usize = 8;
/// Columns of a panel.
const COLUMNS: usize = 2 * TILE;
/// Rows that are computed together: over a block of K, their packed form stays in a core's L2 cache.
const PART: usize = 512;
/// Bytes of packed rows at a time; more rows than fit go in waves.
const WAVE: usize = 32 << 20;

thread_local! {
    /// Packed rows of the call in progress.
    static PACKED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// `x @ w.T`: x `[rows, k]`, w `[n, k]`, out `[rows, n]`.
pub(super) struct Product {
    pub source: Source,
    pub rows: usize,
    pub x: Input,
    pub out: Output,
}

impl Product {
    /// # Safety
    /// [`is_usable`] is true, the weights are dense, and the buffers have the sizes named above.
    pub unsafe fn run(&self) {
        let k = self.source.k;
        let per_row = PackedRows::bytes(TILE, k) / TILE;
        let most = (WAVE / per_row.max(1)).max(PART) / PART * PART;
        PACKED.with_borrow_mut(|packed| {
            for first in (0..self.rows).step_by(most) {
                let rows = most.min(self.rows - first);
                packed.clear();
                packed.reserve(PackedRows::bytes(rows, k) / 8 + TILE_BYTES / 8);
                // Tiles are lines of the cache.
                let base = packed.as_mut_ptr().cast::<u8>();
                let base = base.add(base.align_offset(64));
                self.wave(first, rows, base);
            }
        });
    }

    unsafe fn wave(&self, first: usize, rows: usize, packed: *mut u8) {
        let Source { n, k, .. } = self.source;
        let parts: Vec<PackedRows> = (0..rows)
            .step_by(PART)
            .map(|at| PackedRows {
                first: first + at,
                count: PART.min(rows - at),
                k,
                to: packed.add(PackedRows::bytes(at, k)),
            })
            .collect();
        let tiles: Vec<(&PackedRows, usize)> =
            parts.iter().flat_map(|part| (0..part.tiles()).map(move |tile| (part, tile))).collect();
        pool::run(tiles.len(), |i| {
            let (part, tile) = tiles[i];
            // SAFETY: tasks write disjoint tiles.
            unsafe { part.pack(tile, self.x) }
        });
        let panels = n.div_ceil(COLUMNS);
        pool::run(panels * parts.len(), |i| {
            let (part, column) = (&parts[i / panels], i % panels * COLUMNS);
            // SAFETY: tasks differ in part or columns; the rows are packed.
            unsafe { simd::with(Isa::Avx512, Columns { product: self, part, column }) }
        });
    }
}

/// [`COLUMNS`] columns of the rows of a part.
struct Columns<'a> {
    product: &'a Product,
    part: &'a PackedRows,
    column: usize,
}

#[repr(C, align(64))]
struct Scratch {
    panel: [u8; STEPS * 3 * 2 * TILE_BYTES],
    totals: [f32; PART * COLUMNS],
}

thread_local! {
    /// Too large for the stack of a thread that the host has made.
    static SCRATCH: RefCell<Option<Box<Scratch>>> = const { RefCell::new(None) };
}

impl Work for Columns<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let scratch = SCRATCH.with_borrow_mut(|scratch| {
            let new = || Box::new(Scratch { panel: [0; _], totals: [0.0; _] });
            &raw mut **scratch.get_or_insert_with(new)
        });
        let (panel, totals) =
            ((&raw mut (*scratch).panel).cast::<u8>(), (&raw mut (*scratch).totals).cast::<f32>());
        let Self { product: Product { source, out, .. }, part, column } = self;
        let tiles = Tiles::configure();
        if source.k == 0 {
            std::ptr::write_bytes(totals, 0, part.count * COLUMNS);
        }
        for from in (0..source.k).step_by(STEPS * STEP) {
            let steps = STEPS.min((source.k - from).div_ceil(STEP));
            let merge = if from == 0 { Merge::Replace } else { Merge::Add };
            let parts = Panel { source: *source, column, from, steps, to: panel }.fill();
            for tile in (0..part.tiles()).step_by(2) {
                let rows = [part.block(from, steps, tile), part.block(from, steps, tile + 1)];
                let sums = totals.add(tile * TILE * COLUMNS);
                if tile + 1 < part.tiles() {
                    tiles.two(rows, panel, (steps, parts), sums, merge);
                } else {
                    tiles.one(rows[0], panel, (steps, parts), sums, merge);
                }
            }
        }
        drop(tiles);
        for row in 0..part.count {
            for n in (column..(column + COLUMNS).min(source.n)).step_by(TILE) {
                let total = S::load(totals.add(row * COLUMNS + n - column));
                store_columns::<S>(*out, (part.first + row) * source.n, n, source.n, total);
            }
        }
    }
}

#[cfg(test)]
mod tests;
