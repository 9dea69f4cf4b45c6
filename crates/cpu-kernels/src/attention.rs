//! Attention over paged keys and values: norms, rotates, writes the new keys and values, then attends.
//!
//! Invariants: a query's bits depend on its own keys in logical order only. Keys are taken in tiles of
//! [`KEYS`] that are aligned to absolute positions, each tile's softmax is merged into the running one, and
//! a key that a query must not see adds exact zeros. The pools are written in place.

mod heads;
mod store;
mod tiles;

use heads::Angles;
use std::cell::RefCell;
use std::marker::PhantomData;

use super::element::Float;
use super::gemm::*;
use super::pool;
use super::simd::{self, Isa};
pub use store::Store;
use tiles::{Attend, Queries};

/// Keys per tile.
const KEYS: usize = 64;

/// Rows (query and head of one group) per task; a multiple of all register tiles.
const ROWS: usize = 48;

/// Inputs, in order: qkv `[rows, (heads + kv_heads) * head_dim + kv_heads * v_dim]` or as much of it as is projected, positions `[axes, rows]`,
/// slots `[rows]`, segments `[segments, 5]`, tables `[tables]`, the pools `[blocks, block_size, kv_heads, _]`
/// whose last axis is a head or its packed words, then those of q norm, k norm, inverse frequencies, the axis of each pair
/// `[dims / 2]`, sinks and ends `[rows]` that are named.
/// Outputs: `[rows, heads * v_dim]` and the pools.
///
/// With `latent`, there are queries in place of qkv, `[rows, heads * (nope_dim + head_dim)]`, and three more inputs at the
/// end: absorbed queries `[rows, heads * v_dim]`, rows `[rows, v_dim + head_dim]`, and the norm's weight `[v_dim]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    pub float: Float,
    pub pool: Store,
    pub rows: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub v_dim: usize,
    pub projected: Projected,
    pub blocks: usize,
    pub block_size: usize,
    pub segments: usize,
    pub tables: usize,
    pub q_norm: Option<Norm>,
    pub k_norm: Option<Norm>,
    /// Of values, without a weight: the epsilon.
    pub v_norm: Option<f32>,
    pub rope: Option<Rope>,
    pub scale: f32,
    pub softcap: Option<f32>,
    pub window: Option<usize>,
    /// First keys that a window sees as well. Their blocks come first in a table, even where those that follow are
    /// missing.
    pub sink_tokens: usize,
    pub sinks: Option<Float>,
    pub ends: Option<Ends>,
    pub latent: Option<Latent>,
}

/// What a row holds beside its queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projected {
    /// Keys, then values.
    QueriesKeysValues,
    /// Keys. They are the values, too, before their norm and rotation.
    QueriesAndKeys,
    /// Nothing: keys and values are in the pools, where another layer wrote them, and stay as they are.
    Queries,
}

impl Projected {
    /// How many parts with a head for each kv head follow the queries.
    pub fn parts_of_keys(self) -> usize {
        match self {
            Self::QueriesKeysValues => 2,
            Self::QueriesAndKeys => 1,
            Self::Queries => 0,
        }
    }
}

/// One vector a position is value and key of all heads, and the pool of keys has a further key, which rotates. Queries are
/// two, too: one that was absorbed for the vector, and the last `head_dim` elements of the projected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latent {
    /// Elements of a projected query before those that rotate.
    pub nope_dim: usize,
    /// Of the vector.
    pub norm: Norm,
    /// What the normed vector is multiplied by.
    pub scale: f32,
}

/// Each row has an end: the position after the last key that it sees, if that is beyond its own. It counts up to the last
/// row of its segment. Of keys after its own, a row sees those whose own rows have the same end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// A row sees all of these keys.
    Whole,
    /// It sees those within the window, which reaches as far as it does back.
    Windowed,
}

/// RMS norm of a head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    pub weight: Float,
    pub eps: f32,
}

/// Rotation of the first `dims` of a head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    pub dims: usize,
    pub pairs: RotaryPairing,
    pub magnitude: f32,
    pub axes: RotaryAxes,
}

/// How many positions a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotaryAxes {
    /// One, by which all pairs turn.
    One,
    /// In time, in height and in width. Each pair turns by one of them.
    Three,
}

/// Which elements rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotaryPairing {
    /// `(i, i + dims/2)`: nearly every model (GPT-NeoX).
    Halves,
    /// `(2i, 2i + 1)`: GPT-J and its descendants. MLX's name is traditional.
    Interleaved,
}

/// Consecutive rows of one sequence.
#[derive(Clone, Copy)]
struct Segment {
    first_row: usize,
    len: usize,
    first_position: usize,
    table_start: usize,
    first_block: usize,
    /// Whether all rows have the same end, so that none hides a key before it.
    shares_end: bool,
}

/// Buffers of a call.
#[derive(Clone, Copy)]
struct Call<'a> {
    isa: Isa,
    what: &'a Attention,
    qkv: *const u8,
    slots: *const i32,
    tables: *const i32,
    k_pool: *mut u8,
    v_pool: *mut u8,
    q_norm: *const u8,
    k_norm: *const u8,
    sinks: *const u8,
    /// Null if there are none.
    ends: *const i32,
    /// Of latents: absorbed queries, rows and the norm's weight.
    latent: [*const u8; 3],
    out: *mut u8,
    /// Cosines, then sines, of each row: `[rows][2][dims / 2]`.
    turns: *mut f32,
    segments: &'a [Segment],
}

// SAFETY: tasks of the first phase write disjoint rows of `turns` and disjoint slots; those of the second
// only read them and write disjoint parts of `out`.
unsafe impl Sync for Call<'_> {}

thread_local! {
    static TURNS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Memory of this thread for `floats`, until the next call. (Not a closure's argument, because a closure would be
/// compiled without the instruction set.)
fn scratch(floats: usize) -> *mut f32 {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.reserve(floats.saturating_sub(scratch.len()));
        scratch.as_mut_ptr()
    })
}

impl Attention {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8]) {
        let mut rest = inputs[7..].iter().copied();
        let mut named = |there: bool| if there { rest.next() } else { None }.unwrap_or(std::ptr::null());
        let (q_norm, k_norm) = (named(self.q_norm.is_some()), named(self.k_norm.is_some()));
        let freqs = named(self.rope.is_some());
        let axes = named(self.rope.is_some_and(|rope| rope.axes == RotaryAxes::Three));
        let sinks = named(self.sinks.is_some());
        let ends = named(self.ends.is_some());
        let latent = [0; 3].map(|_| named(self.latent.is_some()));
        let (segments, covered) = self.segments(inputs[3].cast(), ends.cast());
        TURNS.with_borrow_mut(|turns| {
            turns.reserve((self.rows * self.turn_width()).saturating_sub(turns.len()));
            let call = Call {
                isa: simd::isa(),
                what: self,
                qkv: inputs[0],
                slots: inputs[2].cast(),
                tables: inputs[4].cast(),
                k_pool: outputs[1],
                v_pool: outputs[2],
                q_norm,
                k_norm,
                sinks,
                ends: ends.cast(),
                latent,
                out: outputs[0],
                turns: turns.as_mut_ptr(),
                segments: &segments,
            };
            let angles = Angles { positions: inputs[1].cast(), freqs: freqs.cast(), axes: axes.cast() };
            call.write_rows(angles, &covered);
            match self.pool {
                // Packed keys are unpacked to f32 before they are multiplied.
                Store::Float(Float::F32) | Store::Packed(_) => call.attend::<F32>(),
                Store::Float(Float::F16) => call.attend::<F16>(),
                Store::Float(Float::Bf16) => call.attend::<Bf16>(),
            }
        })
    }

    fn turn_width(&self) -> usize {
        self.rope.map_or(0, |rope| rope.dims)
    }

    /// Elements of a row of qkv.
    fn row_width(&self) -> usize {
        let of_keys = match self.projected {
            Projected::QueriesKeysValues => self.head_dim + self.v_dim,
            Projected::QueriesAndKeys => self.head_dim,
            Projected::Queries => 0,
        };
        self.heads * self.head_dim + self.kv_heads * of_keys
    }

    /// The segments that make sense, and whether a row is in one.
    unsafe fn segments(&self, numbers: *const i32, ends: *const i32) -> (Vec<Segment>, Vec<bool>) {
        let mut covered = vec![false; self.rows];
        let mut segments = Vec::with_capacity(self.segments);
        for i in 0..self.segments {
            let number = |j: usize| usize::try_from(*numbers.add(5 * i + j)).unwrap_or(usize::MAX >> 8);
            let mut segment = Segment {
                first_row: number(0),
                len: number(1),
                first_position: number(2),
                table_start: number(3),
                first_block: number(4),
                shares_end: false,
            };
            if let Some(rows) = covered.get_mut(segment.first_row..segment.first_row + segment.len) {
                rows.fill(true);
                if !ends.is_null() {
                    let ends = std::slice::from_raw_parts(ends.add(segment.first_row), segment.len);
                    segment.shares_end = ends.iter().all(|end| *end == ends[0]);
                }
                segments.push(segment);
            }
        }
        (segments, covered)
    }
}

impl Call<'_> {
    /// Second phase.
    unsafe fn attend<F: Format>(&self) {
        let group = self.what.heads / self.what.kv_heads;
        let mut tasks = Vec::new();
        let most = self.rows_per_task(group);
        for (segment, Segment { len, first_position, .. }) in self.segments.iter().copied().enumerate() {
            for first in (0..len * group).step_by(most) {
                let rows = most.min(len * group - first);
                let work = rows * (first_position + (first + rows) / group);
                tasks.extend((0..self.what.kv_heads).map(|kv_head| (work, segment, kv_head, first)));
            }
        }
        // The longest go first, so that threads end together.
        tasks.sort_unstable_by_key(|(work, ..)| std::cmp::Reverse(*work));
        pool::run(tasks.len(), |i| {
            let (_, segment, kv_head, first) = tasks[i];
            let segment = self.segments[segment];
            let count = most.min(segment.len * group - first);
            let tile = Queries { call: self, segment, kv_head, first, count, group };
            // SAFETY: tasks write the outputs of different rows or heads.
            unsafe { simd::with(self.isa, Attend::<F> { tile, format: PhantomData }) }
        });
    }

    /// Rows of a task: fewer where a single kv head would keep one thread busy alone.
    fn rows_per_task(&self, group: usize) -> usize {
        if self.what.kv_heads > 1 {
            return ROWS;
        }
        let rows: usize = self.segments.iter().map(|segment| segment.len * group).sum();
        rows.div_ceil(pool::threads()).next_multiple_of(DIRECT_ROWS).clamp(DIRECT_ROWS, ROWS)
    }

    /// Position after the last key that a row of a segment sees.
    #[inline(always)]
    unsafe fn end(&self, segment: &Segment, row: usize) -> usize {
        let own = segment.first_position + row + 1;
        if self.ends.is_null() {
            return own;
        }
        let end = usize::try_from(*self.ends.add(segment.first_row + row)).unwrap_or(0);
        let reach = match (self.what.ends, self.what.window) {
            (Some(Ends::Windowed), Some(window)) => own + window.saturating_sub(1),
            _ => usize::MAX,
        };
        end.min(reach).clamp(own, segment.first_position + segment.len)
    }

    /// Whether a row of a segment does not see the key at a position after its own and before its end.
    #[inline(always)]
    unsafe fn hides(&self, segment: &Segment, row: usize, key: usize) -> bool {
        let rows = self.ends.add(segment.first_row);
        *rows.add(row) != *rows.add(key - segment.first_position)
    }

    /// Slot of logical position `key` of a segment.
    #[inline(always)]
    unsafe fn slot(&self, segment: &Segment, key: usize) -> usize {
        let Attention { block_size, tables, blocks, sink_tokens, .. } = *self.what;
        let missing =
            if key / block_size < sink_tokens.div_ceil(block_size) { 0 } else { segment.first_block };
        let at = (segment.table_start + key / block_size).wrapping_sub(missing);
        let block = if at < tables { *self.tables.add(at) as usize } else { 0 };
        (if block < blocks { block } else { 0 }) * block_size + key % block_size
    }
}
