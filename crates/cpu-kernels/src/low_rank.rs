//! The low-rank products that adapters add to rows of a product: `out += (x · down) · up`, each row with its own matrices.
//!
//! Both products are the same loop, since matrices are stored inputs first: a vector of columns is summed over the inputs one
//! after the other. Invariant: so a row's bits depend on that row and its adapter only, whichever rows share a tile, and are
//! the same with all instruction sets that fuse a multiplication with an addition.

use std::cell::RefCell;

use super::element::{Float, load, load1, store, store1};
use super::pool;
use super::simd::{self, Isa, Simd, Work};

/// Inputs: what is added to, `[results, n]`; x `[rows, k]`; ids `[results]`; down `[count, k, rank]`; one up for each part,
/// `[count, part's rank, columns]`; and with `gain` factors `[count + 1, n]` f32
/// of the parts' columns. Output: the first input's buffer.
///
/// Result `i` is of row `i / sharing` with the matrices `ids[i]`; one whose id does not exist stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct LowRank {
    /// Of x and of the results.
    pub float: Float,
    pub down: Float,
    pub results: usize,
    pub sharing: usize,
    pub count: usize,
    pub n: usize,
    pub k: usize,
    /// Of all parts together.
    pub rank: usize,
    pub parts: Vec<LowRankPart>,
    pub gain: bool,
}

/// Columns of the results and what of `x · down` they are computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct LowRankPart {
    pub up: Float,
    pub first_column: usize,
    pub columns: usize,
    pub first_rank: usize,
    pub rank: usize,
}

/// Rows that share loaded weights.
const TILE: usize = 4;
/// Rows and columns of a task.
const ROWS: usize = 32;
const COLUMNS: usize = 256;
/// Multiplications that are too few for a second thread.
const SMALL: usize = 1 << 14;

thread_local! {
    /// x in f32 and `x · down` of the call in progress. Kept, since fresh pages would cost as much as small products.
    static ROOM: RefCell<[Vec<f32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// Some rows and columns of a product with one matrix.
#[derive(Clone, Copy)]
struct Task<'a> {
    /// The results that have this matrix.
    results: &'a [usize],
    matrix: Matrix,
    first: usize,
    end: usize,
    x: Rows,
    out: Target,
}

/// `[inputs, columns]`
#[derive(Clone, Copy)]
struct Matrix {
    base: *const u8,
    float: Float,
    inputs: usize,
    columns: usize,
}

/// f32 rows; result `i` reads the one that begins at element `i / sharing * stride + offset`.
#[derive(Clone, Copy)]
struct Rows {
    base: *const f32,
    sharing: usize,
    stride: usize,
    offset: usize,
}

/// Where sums go: result `i` begins at element `i * stride + offset`.
#[derive(Clone, Copy)]
struct Target {
    base: *mut u8,
    float: Float,
    stride: usize,
    offset: usize,
    merge: Merge,
    /// Factors `[count, stride]` of what is stored.
    gain: *const f32,
}

/// What happens to numbers that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merge {
    Replace,
    Add,
}

// SAFETY: inputs are only read; tasks write disjoint results or columns.
unsafe impl Sync for Task<'_> {}

impl LowRank {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], out: *mut u8) {
        let Self { float, results, sharing, n, k, rank, .. } = *self;
        let by_id = self.results_by_id(inputs[2].cast());
        let isa = simd::isa();
        ROOM.with_borrow_mut(|[wide, narrow]| {
            narrow.clear();
            narrow.reserve(results * rank);
            let narrow = narrow.as_mut_ptr();
            let base = self.floats(inputs[1], wide);
            let x = Rows { base, sharing, stride: k, offset: 0 };
            let none = std::ptr::null();
            let to = Target {
                base: narrow.cast(),
                float: Float::F32,
                stride: rank,
                offset: 0,
                merge: Merge::Replace,
                gain: none,
            };
            let down = Matrix { base: inputs[3], float: self.down, inputs: k, columns: rank };
            let mut tasks = Vec::new();
            tasks_of(&mut tasks, &by_id, down, x, to);
            compute(isa, &tasks);
            let mut tasks = Vec::new();
            let gain = if self.gain { inputs[4 + self.parts.len()].cast() } else { none };
            for (part, up) in self.parts.iter().zip(&inputs[4..]) {
                let up = Matrix { base: *up, float: part.up, inputs: part.rank, columns: part.columns };
                let x = Rows { base: narrow, sharing: 1, stride: rank, offset: part.first_rank };
                let to = Target {
                    base: out,
                    float,
                    stride: n,
                    offset: part.first_column,
                    merge: Merge::Add,
                    gain: if gain.is_null() { gain } else { gain.add(part.first_column) },
                };
                tasks_of(&mut tasks, &by_id, up, x, to);
            }
            compute(isa, &tasks);
        });
    }

    /// x in f32.
    unsafe fn floats(&self, x: *const u8, room: &mut Vec<f32>) -> *const f32 {
        if self.float == Float::F32 {
            return x.cast();
        }
        let elements = self.results / self.sharing * self.k;
        room.clear();
        room.extend((0..elements).map(|i| load1(x, self.float, i)));
        room.as_ptr()
    }

    /// The results of each id.
    unsafe fn results_by_id(&self, ids: *const i32) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new(); self.count];
        for i in 0..self.results {
            if let Some(results) = all.get_mut(*ids.add(i) as usize) {
                results.push(i);
            }
        }
        all
    }
}

/// The tasks of a product whose matrices, one for each id, begin with `matrix`.
unsafe fn tasks_of<'a>(
    tasks: &mut Vec<Task<'a>>,
    by_id: &'a [Vec<usize>],
    matrix: Matrix,
    x: Rows,
    out: Target,
) {
    let bytes = matrix.inputs * matrix.columns * matrix.float.bytes();
    for (id, results) in by_id.iter().enumerate().filter(|(_, results)| !results.is_empty()) {
        let matrix = Matrix { base: matrix.base.add(id * bytes), ..matrix };
        let gain = if out.gain.is_null() { out.gain } else { out.gain.add(id * out.stride) };
        let out = Target { gain, ..out };
        for results in results.chunks(ROWS) {
            for first in (0..matrix.columns).step_by(COLUMNS) {
                let end = matrix.columns.min(first + COLUMNS);
                tasks.push(Task { results, matrix, first, end, x, out });
            }
        }
    }
}

unsafe fn compute(isa: Isa, tasks: &[Task]) {
    let work = |task: &Task| task.results.len() * task.matrix.inputs * (task.end - task.first);
    // SAFETY: as in `run`.
    let one = |i: usize| unsafe { simd::with(isa, tasks[i]) };
    if tasks.iter().map(work).sum::<usize>() <= SMALL {
        (0..tasks.len()).for_each(one)
    } else {
        pool::run(tasks.len(), one)
    }
}

impl Work for Task<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        match self.matrix.float {
            Float::F32 => self.columns::<S, F32>(),
            Float::F16 => self.columns::<S, F16>(),
            Float::Bf16 => self.columns::<S, BF16>(),
        }
    }
}

const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

#[inline(always)]
const fn float_of(kind: u8) -> Float {
    match kind {
        F32 => Float::F32,
        F16 => Float::F16,
        _ => Float::Bf16,
    }
}

impl Task<'_> {
    #[inline(always)]
    unsafe fn columns<S: Simd, const KIND: u8>(&self) {
        let vectors = if S::MANY_REGISTERS { 4 } else { 2 };
        let mut at = self.first;
        while at < self.end {
            let whole = at + vectors * S::LANES <= self.end;
            let width = if whole { vectors * S::LANES } else { S::LANES };
            for results in self.results.chunks(TILE) {
                let rows = Tile::<KIND> { task: self, results, at };
                match (whole, S::MANY_REGISTERS) {
                    (true, true) => S::call(rows.of::<4>()),
                    (true, false) => S::call(rows.of::<2>()),
                    (false, _) => S::call(rows.of::<1>()),
                }
            }
            at += width;
        }
    }
}

/// At most [`TILE`] results and some vectors of columns from `at` on.
#[derive(Clone, Copy)]
struct Tile<'a, const KIND: u8> {
    task: &'a Task<'a>,
    results: &'a [usize],
    at: usize,
}

struct Vectors<'a, const KIND: u8, const V: usize>(Tile<'a, KIND>);

impl<'a, const KIND: u8> Tile<'a, KIND> {
    #[inline(always)]
    fn of<const V: usize>(self) -> Vectors<'a, KIND, V> {
        Vectors(self)
    }
}

impl<const KIND: u8, const V: usize> Work for Vectors<'_, KIND, V> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        match self.0.results.len() {
            1 => self.rows::<S, 1>(),
            2 => self.rows::<S, 2>(),
            3 => self.rows::<S, 3>(),
            _ => self.rows::<S, TILE>(),
        }
    }
}

impl<const KIND: u8, const V: usize> Vectors<'_, KIND, V> {
    #[inline(always)]
    unsafe fn rows<S: Simd, const N: usize>(&self) {
        let Tile { task, results, at } = self.0;
        let Matrix { base, inputs, columns, .. } = task.matrix;
        let mut x = [std::ptr::null::<f32>(); N];
        for r in 0..N {
            x[r] = task.x.base.add(results[r] / task.x.sharing * task.x.stride + task.x.offset);
        }
        let mut sums = [[S::splat(0.0); V]; N];
        // A vector may reach into the next input's columns, whose sums are not stored, but not after the matrix.
        let inside = (inputs * columns).saturating_sub(at + V * S::LANES) / columns + 1;
        let inside = if at + V * S::LANES > inputs * columns { 0 } else { inside.min(inputs) };
        for j in 0..inside {
            let mut weights = [S::splat(0.0); V];
            for v in 0..V {
                weights[v] = load::<S>(base, float_of(KIND), j * columns + at + v * S::LANES);
            }
            for r in 0..N {
                let x = S::splat(*x[r].add(j));
                for v in 0..V {
                    sums[r][v] = S::fma(x, weights[v], sums[r][v]);
                }
            }
        }
        for j in inside..inputs {
            let mut lanes = [[0f32; 16]; V];
            for c in 0..(columns - at).min(V * S::LANES) {
                lanes[c / S::LANES][c % S::LANES] = load1(base, float_of(KIND), j * columns + at + c);
            }
            for r in 0..N {
                let x = S::splat(*x[r].add(j));
                for v in 0..V {
                    sums[r][v] = S::fma(x, S::load(lanes[v].as_ptr()), sums[r][v]);
                }
            }
        }
        for r in 0..N {
            for v in 0..V {
                task.put::<S>(results[r], at + v * S::LANES, sums[r][v]);
            }
        }
    }
}

impl Task<'_> {
    /// Stores the sums of the columns from `column` on.
    #[inline(always)]
    unsafe fn put<S: Simd>(&self, result: usize, column: usize, sum: S::F) {
        let Target { base, float, stride, offset, merge, gain } = self.out;
        let at = result * stride + offset + column;
        if column + S::LANES <= self.end {
            let sum = if merge == Merge::Add { S::add(load::<S>(base, float, at), sum) } else { sum };
            let sum = if gain.is_null() { sum } else { S::mul(sum, S::load(gain.add(column))) };
            return store::<S>(base, float, at, sum);
        }
        let mut lanes = [0f32; 16];
        S::store(lanes.as_mut_ptr(), sum);
        for i in 0..self.end - column {
            let sum = if merge == Merge::Add { load1(base, float, at + i) + lanes[i] } else { lanes[i] };
            let factor = if gain.is_null() { 1.0 } else { *gain.add(column + i) };
            store1(base, float, at + i, sum * factor);
        }
    }
}
