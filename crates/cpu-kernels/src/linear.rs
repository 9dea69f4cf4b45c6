//! Products with weights: dense and quantized, for all rows of a step or for rows that chose an expert.
//!
//! Invariant: a row's bits depend on that row and the weights only (see [`gemm`](super::gemm)).

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::element::{Float, Input, Output, store_columns};
use super::gemm::*;
use super::int8;
#[cfg(target_arch = "x86_64")]
use super::matrix;
use super::pool;
use super::simd::dot::dot_isa;
use super::simd::{self, Isa, Simd, Work};
use super::unit::Unit;
use super::weights::{ExpertAddresses, Source, Stage, Weights};

/// What products with quantized weights do with the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// Multiply them as they are, in f32.
    #[default]
    Exact,
    /// Round them to 8 bits in blocks of 32, where weights have 4 or 8 bits.
    Int8,
}

/// `x @ w.T + bias`. Inputs: x `[rows, k]`, w `[experts, n, k]`, for affine weights scales and biases
/// `[experts, n, k / group]`, then with `Rows::Chosen` the expert ids, or the bias `[n]` if there is one. With
/// `Layout::Table` a table of [`ExpertAddresses`] stands for w, scales and biases. Output
/// `[results, n]` in x's type.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    pub weights: Weights,
    pub activations: Activations,
    /// For dense weights without experts.
    pub unit: Unit,
    pub float: Float,
    pub n: usize,
    pub k: usize,
    pub rows: Rows,
    /// With `Rows::All` only.
    pub bias: Option<Float>,
}

/// Which rows are multiplied with which expert.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// Each row of x once, with the only expert.
    All(usize),
    /// Result `i` is row `i / sharing` of x with expert `ids[i]`; an id that does not exist gives zeros.
    Chosen { results: usize, sharing: usize, experts: usize, layout: Layout },
}

/// Where the weights of experts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One after another.
    Stacked,
    /// At the addresses of a table. Results of an expert without words keep what they hold, so that several calls can
    /// compute some of the experts each.
    Table,
}

/// Most rows that are computed together: their packed form should stay in a core's L2 cache.
const PART: usize = 252;

/// Packed floats at a time; more rows than fit go in waves.
const WAVE: usize = 4 << 20;

/// Tiles of `LANES` columns that a task of many rows takes through a block of K together.
const PANELS: usize = 4;

/// Products that are too small for a second thread, in multiplications.
const SMALL: usize = 1 << 15;

thread_local! {
    /// Packed rows of the call in progress. Kept, since fresh pages would cost as much as small products.
    static PACKED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Rows that are computed together.
#[derive(Clone, Copy)]
struct Part<'a> {
    source: Source,
    /// Row of x and row of the output.
    rows: &'a [(usize, usize)],
    /// `[block of K][tile of rows][step][row][4]`
    packed: *mut f32,
}

// SAFETY: tasks pack, and later write, disjoint rows or columns.
unsafe impl Sync for Part<'_> {}

impl Part<'_> {
    /// Rows of a packed tile, and of all tiles together.
    fn shape<F: Format>(&self, isa: Isa) -> (usize, usize) {
        match self.rows.len() {
            rows if is_few::<F>(rows, isa) => (direct_rows(rows), direct_rows(rows)),
            rows => (isa.panel_rows(), part_rows(rows, isa.panel_rows())),
        }
    }
}

/// Whether weights are decoded in registers for so many rows.
fn is_few<F: Format>(rows: usize, isa: Isa) -> bool {
    rows <= if isa.lanes() == 16 { F::FEW_ROWS } else { DIRECT_ROWS }
}

/// Rows that all tiles of the panel path have together.
fn part_rows(rows: usize, panel_rows: usize) -> usize {
    rows / panel_rows * panel_rows + last_rows(rows % panel_rows, panel_rows)
}

impl Linear {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], out: *mut u8) {
        if self.n == 0 {
            return;
        }
        let bias = self.bias.map(|float| Input(inputs[inputs.len() - 1], float));
        let (x, out) = (Input(inputs[0], self.float), Output { to: out, float: self.float, bias });
        let source = self.source(inputs);
        #[cfg(target_arch = "x86_64")]
        if let Some(rows) = self.rows_of_matrix_unit() {
            return matrix::Product { source, rows, x, out }.run();
        }
        let by_expert = self.rows_by_expert(inputs[inputs.len() - 1].cast(), source.table, &out);
        if let (Weights::Affine { bits: bits @ (4 | 8), group, .. }, Activations::Int8) =
            (self.weights, self.activations)
        {
            let product = int8::Product { source, group, by_expert, x, out };
            let isa = dot_isa(simd::isa());
            return if bits == 4 { product.run::<Q4>(isa) } else { product.run::<Q8>(isa) };
        }
        match self.weights {
            Weights::Affine { bits: 4, .. } => self.waves::<Q4>(source, &by_expert, x, out),
            Weights::Affine { bits: 8, .. } => self.waves::<Q8>(source, &by_expert, x, out),
            Weights::Affine { .. } | Weights::Dense(Float::F32) => {
                self.waves::<F32>(source, &by_expert, x, out)
            }
            Weights::Dense(Float::F16) => self.waves::<F16>(source, &by_expert, x, out),
            Weights::Dense(Float::Bf16) => self.waves::<Bf16>(source, &by_expert, x, out),
        }
    }

    /// How many rows the matrix unit computes, if it does.
    #[cfg(target_arch = "x86_64")]
    fn rows_of_matrix_unit(&self) -> Option<usize> {
        match (self.unit, self.weights, &self.rows) {
            (Unit::Matrix, Weights::Dense(_), Rows::All(rows)) => matrix::is_usable().then_some(*rows),
            _ => None,
        }
    }

    unsafe fn waves<F: Format>(
        &self,
        source: Source,
        by_expert: &[Vec<(usize, usize)>],
        x: Input,
        out: Output,
    ) {
        let isa = simd::isa();
        // Tiles are padded to at most eight rows.
        let floats = |rows: &[_]| rows.len().next_multiple_of(DIRECT_ROWS) * self.k.next_multiple_of(F::UNIT);
        PACKED.with_borrow_mut(|packed| {
            let mut parts = by_expert
                .iter()
                .enumerate()
                .flat_map(|(expert, rows)| rows.chunks(PART).map(move |rows| (expert, rows)))
                .peekable();
            while parts.peek().is_some() {
                let (mut wave, mut used) = (Vec::new(), 0);
                while let Some((expert, rows)) =
                    parts.next_if(|(_, rows)| used == 0 || used + floats(rows) <= WAVE)
                {
                    wave.push((expert, rows, used));
                    used += floats(rows);
                }
                packed.clear();
                packed.reserve(used);
                let base = packed.as_mut_ptr();
                let wave: Vec<_> = wave
                    .into_iter()
                    .map(|(expert, rows, at)| Part {
                        source: source.expert(expert),
                        rows,
                        packed: base.add(at),
                    })
                    .collect();
                pack_wave::<F>(isa, &wave, x);
                multiply_wave::<F>(isa, &wave, out);
            }
        })
    }

    /// Weights of the first expert.
    fn source(&self, inputs: &[*const u8]) -> Source {
        let in_table = matches!(self.rows, Rows::Chosen { layout: Layout::Table, .. });
        let affine = !in_table && matches!(self.weights, Weights::Affine { .. });
        Source {
            weights: self.weights,
            table: if in_table { inputs[1].cast() } else { std::ptr::null() },
            words: inputs[1],
            scales: if affine { inputs[2] } else { std::ptr::null() },
            biases: if affine { inputs[3] } else { std::ptr::null() },
            n: self.n,
            k: self.k,
        }
    }

    /// Rows of x and of the output, for each expert.
    unsafe fn rows_by_expert(
        &self,
        ids: *const i32,
        table: *const ExpertAddresses,
        out: &Output,
    ) -> Vec<Vec<(usize, usize)>> {
        match self.rows {
            Rows::All(rows) => vec![(0..rows).map(|r| (r, r)).collect()],
            Rows::Chosen { results, sharing, experts, .. } => {
                let mut all = vec![Vec::new(); experts];
                for i in 0..results {
                    let expert = *ids.add(i) as usize;
                    match all.get_mut(expert) {
                        Some(_) if !table.is_null() && (*table.add(expert))[0].is_null() => {}
                        Some(rows) => rows.push((i / sharing, i)),
                        None => {
                            let bytes = self.n * self.float.bytes();
                            std::ptr::write_bytes(out.to.add(i * bytes), 0, bytes);
                        }
                    }
                }
                all
            }
        }
    }
}

unsafe fn pack_wave<F: Format>(isa: Isa, wave: &[Part], x: Input) {
    let tiles: Vec<_> = wave
        .iter()
        .flat_map(|part| (0..part.rows.len()).step_by(part.shape::<F>(isa).0).map(move |first| (part, first)))
        .collect();
    let elements: usize = wave.iter().map(|part| part.rows.len() * part.source.k).sum();
    let pack = |i: usize| {
        let (part, first): (&Part, usize) = tiles[i];
        let (tile, padded_rows) = part.shape::<F>(isa);
        let (rows, mr) = (&part.rows[first..], tile.min(padded_rows - first));
        let k = part.source.k;
        for from in (0..k).step_by(K_BLOCK) {
            let width = K_BLOCK.min(k - from);
            let out = part.packed.add(from * padded_rows + first * width.next_multiple_of(F::UNIT));
            for r in 0..mr {
                let source = rows.get(r).map(|row| x.at(row.0 * k));
                pack_row::<F>(out, (r, mr), source, (from, k), width);
            }
        }
    };
    if elements <= SMALL { (0..tiles.len()).for_each(pack) } else { pool::run(tiles.len(), pack) }
}

unsafe fn multiply_wave<F: Format>(isa: Isa, wave: &[Part], out: Output) {
    let lanes = isa.lanes();
    // All parts have the same n and k.
    let Some(Source { n, k, .. }) = wave.first().map(|part| part.source) else { return };
    let panels = n.div_ceil(lanes);
    let work: usize = wave.iter().map(|part| part.rows.len() * n * k).sum();
    let few = wave.iter().all(|part| is_few::<F>(part.rows.len(), isa));
    let per_task = match few {
        _ if work <= SMALL => panels,
        true => (panels * wave.len() / (pool::threads() * 16)).clamp(1, 32),
        false => (panels * wave.len() / (pool::threads() * 4)).clamp(1, PANELS),
    };
    let tasks = panels.div_ceil(per_task);
    pool::run(tasks * wave.len(), |i| {
        let (part, first) = (&wave[i / tasks], i % tasks * per_task * lanes);
        let columns = first..(first + per_task * lanes).min(n);
        // SAFETY: tasks differ in part or columns; the packed rows are ready.
        unsafe {
            if is_few::<F>(part.rows.len(), isa) {
                return simd::with(isa, Few::<F> { part, columns, out, format: PhantomData });
            }
            for first in columns.clone().step_by(PANELS * lanes) {
                let columns = first..(first + PANELS * lanes).min(columns.end);
                simd::with(isa, Many::<F> { part, columns, out, format: PhantomData });
            }
        }
    });
}

/// Up to eight rows: weights are decoded in registers, once.
struct Few<'a, F> {
    part: &'a Part<'a>,
    columns: std::ops::Range<usize>,
    out: Output,
    format: PhantomData<F>,
}

impl<F: Format> Work for Few<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut stage = MaybeUninit::<Stage>::uninit();
        let mut totals = [0f32; DIRECT_ROWS * 16];
        let Part { source, rows, packed } = *self.part;
        let mr = direct_rows(rows.len());
        for n in self.columns.step_by(S::LANES) {
            for from in (0..source.k).step_by(K_BLOCK) {
                let tile = source.tile::<S, F>(n, from, stage.as_mut_ptr());
                let merge = if from == 0 { Merge::Replace } else { Merge::Add };
                let sums = Sums { to: totals.as_mut_ptr(), stride: S::LANES, merge };
                direct::<S, F>(mr, packed.add(from * mr), tile, sums);
            }
            for (r, row) in rows.iter().enumerate() {
                let total = S::load(totals.as_ptr().add(r * S::LANES));
                store_columns::<S>(self.out, row.1 * source.n, n, source.n, total);
            }
        }
    }
}

/// More rows: weights are decoded to a panel, then multiplied with all tiles of rows.
struct Many<'a, F> {
    part: &'a Part<'a>,
    columns: std::ops::Range<usize>,
    out: Output,
    format: PhantomData<F>,
}

#[repr(C, align(64))]
struct Scratch {
    panel: [f32; 16 * K_BLOCK],
    totals: [f32; PART * PANELS * 16],
}

impl<F: Format> Work for Many<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut stage = MaybeUninit::<Stage>::uninit();
        let mut scratch = MaybeUninit::<Scratch>::uninit();
        let decoded = (&raw mut (*scratch.as_mut_ptr()).panel).cast::<f32>();
        let totals = (&raw mut (*scratch.as_mut_ptr()).totals).cast::<f32>();
        let Part { source, rows, packed } = *self.part;
        let span = PANELS * S::LANES;
        let (tile_rows, padded_rows) = (panel_rows::<S>(), part_rows(rows.len(), panel_rows::<S>()));
        if source.k == 0 {
            std::ptr::write_bytes(totals, 0, rows.len() * span);
        }
        for from in (0..source.k).step_by(K_BLOCK) {
            let padded = K_BLOCK.min(source.k - from).next_multiple_of(F::UNIT);
            let merge = if from == 0 { Merge::Replace } else { Merge::Add };
            for n in self.columns.clone().step_by(S::LANES) {
                let tile = source.tile::<S, F>(n, from, stage.as_mut_ptr());
                S::call(Fill::<F> { panel: decoded, tile, format: PhantomData });
                let totals = totals.add(n - self.columns.start);
                for first in (0..rows.len()).step_by(tile_rows) {
                    let x = packed.add(from * padded_rows + first * padded);
                    let sums = Sums { to: totals.add(first * span), stride: span, merge };
                    panel::<S>(tile_rows.min(rows.len() - first), x, decoded, tile.steps::<F>(), sums);
                }
            }
        }
        for (r, row) in rows.iter().enumerate() {
            for n in self.columns.clone().step_by(S::LANES) {
                let total = S::load(totals.add(r * span + n - self.columns.start));
                store_columns::<S>(self.out, row.1 * source.n, n, source.n, total);
            }
        }
    }
}
