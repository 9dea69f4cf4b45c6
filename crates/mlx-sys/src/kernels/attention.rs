//! Attention over paged keys and values: norms, rotates, writes the new keys and values, then attends.
//!
//! Invariants: a query's bits depend on its own keys in logical order only. Keys are taken in tiles of
//! [`KEYS`] that are aligned to absolute positions, each tile's softmax is merged into the running one, and
//! a key that a query must not see adds exact zeros. The pools are written in place.

mod mix;

use std::cell::RefCell;
use std::marker::PhantomData;

use super::element::{self, Float, load1, read, write};
use super::gemm::*;
use super::math;
use super::packing::Packing;
use super::pool;
use super::simd::{self, Isa, Simd, Work};
use mix::{Part, mix};

/// Keys per tile.
const KEYS: usize = 64;

/// Rows (query and head of one group) per task; a multiple of all register tiles.
const ROWS: usize = 48;

/// Bytes that the cache takes at a time.
const LINE: usize = 64;

/// Where each key of a tile is in its pool.
type Slots = [usize; KEYS];

/// Inputs, in order: qkv `[rows, (heads + kv_heads) * head_dim + kv_heads * v_dim]`, positions `[rows]`,
/// slots `[rows]`, segments `[segments, 5]`, tables `[tables]`, the pools `[blocks, block_size, kv_heads, _]`
/// whose last axis is a head or its packed words, then those of q norm, k norm, inverse frequencies and sinks that are named.
/// Outputs: `[rows, heads * v_dim]` and the pools.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    pub float: Float,
    pub pool: Store,
    pub rows: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub v_dim: usize,
    pub blocks: usize,
    pub block_size: usize,
    pub segments: usize,
    pub tables: usize,
    pub q_norm: Option<Norm>,
    pub k_norm: Option<Norm>,
    pub rope: Option<Rope>,
    pub scale: f32,
    pub softcap: Option<f32>,
    pub window: Option<usize>,
    /// First keys that a window sees as well. Their blocks come first in a table, even where those that follow are
    /// missing.
    pub sink_tokens: usize,
    pub sinks: Option<Float>,
}

/// How the pools hold keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Float(Float),
    Packed(Packing),
}

impl Store {
    /// Bytes of `width` elements, which groups divide.
    fn bytes(self, width: usize) -> usize {
        match self {
            Store::Float(float) => width * float.bytes(),
            Store::Packed(packing) => 4 * packing.words(width),
        }
    }

    /// Head `index` of the pool, each `width` wide, from or to f32.
    #[inline(always)]
    unsafe fn read<S: Simd>(self, pool: *const u8, index: usize, out: *mut f32, width: usize) {
        match self {
            Store::Float(float) => read::<S>(pool, float, index * width, out, width),
            Store::Packed(packing) => packing.unpack(pool.add(index * self.bytes(width)).cast(), width, out),
        }
    }

    #[inline(always)]
    unsafe fn write<S: Simd>(self, pool: *mut u8, index: usize, values: *const f32, width: usize) {
        match self {
            Store::Float(float) => write::<S>(pool, float, index * width, values, width),
            Store::Packed(packing) => packing.pack(values, width, pool.add(index * self.bytes(width)).cast()),
        }
    }
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
}

/// Which elements rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotaryPairing {
    /// `2i` and `2i + 1`.
    Interleaved,
    /// `i` and `i + dims / 2`.
    Halves,
}

/// Consecutive rows of one sequence.
#[derive(Clone, Copy)]
struct Segment {
    first_row: usize,
    len: usize,
    first_position: usize,
    table_start: usize,
    first_block: usize,
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
        let (freqs, sinks) = (named(self.rope.is_some()), named(self.sinks.is_some()));
        let (segments, covered) = self.segments(inputs[3].cast());
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
                out: outputs[0],
                turns: turns.as_mut_ptr(),
                segments: &segments,
            };
            call.write_rows(inputs[1].cast(), freqs.cast(), &covered);
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
        (self.heads + self.kv_heads) * self.head_dim + self.kv_heads * self.v_dim
    }

    /// The segments that make sense, and whether a row is in one.
    unsafe fn segments(&self, numbers: *const i32) -> (Vec<Segment>, Vec<bool>) {
        let mut covered = vec![false; self.rows];
        let mut segments = Vec::with_capacity(self.segments);
        for i in 0..self.segments {
            let number = |j: usize| usize::try_from(*numbers.add(5 * i + j)).unwrap_or(usize::MAX >> 8);
            let segment = Segment {
                first_row: number(0),
                len: number(1),
                first_position: number(2),
                table_start: number(3),
                first_block: number(4),
            };
            if let Some(rows) = covered.get_mut(segment.first_row..segment.first_row + segment.len) {
                rows.fill(true);
                segments.push(segment);
            }
        }
        (segments, covered)
    }
}

impl Call<'_> {
    /// First phase: angles of all rows, keys and values to their slots, zeros for rows of no segment.
    unsafe fn write_rows(&self, positions: *const i32, freqs: *const f32, covered: &[bool]) {
        let Attention { rows, heads, v_dim, float, .. } = *self.what;
        struct Shared(*const i32, *const f32);
        // SAFETY: only read.
        unsafe impl Sync for Shared {}
        let shared = Shared(positions, freqs);
        let one = |row: usize| {
            let shared = &shared;
            simd::with(self.isa, WriteRow { call: self, row, position: *shared.0.add(row), freqs: shared.1 });
        };
        let per_task = if rows * self.what.row_width() <= 1 << 15 { rows.max(1) } else { 8 };
        pool::run(rows.div_ceil(per_task), |task| {
            for row in task * per_task..rows.min((task + 1) * per_task) {
                one(row);
                if !covered[row] {
                    let width = heads * v_dim * float.bytes();
                    std::ptr::write_bytes(self.out.add(row * width), 0, width);
                }
            }
        });
    }

    unsafe fn attend<F: Format>(&self) {
        let group = self.what.heads / self.what.kv_heads;
        let mut tasks = Vec::new();
        for (segment, Segment { len, first_position, .. }) in self.segments.iter().copied().enumerate() {
            for first in (0..len * group).step_by(ROWS) {
                let rows = ROWS.min(len * group - first);
                let work = rows * (first_position + (first + rows) / group);
                tasks.extend((0..self.what.kv_heads).map(|kv_head| (work, segment, kv_head, first)));
            }
        }
        // The longest go first, so that threads end together.
        tasks.sort_unstable_by_key(|(work, ..)| std::cmp::Reverse(*work));
        pool::run(tasks.len(), |i| {
            let (_, segment, kv_head, first) = tasks[i];
            let segment = self.segments[segment];
            let count = ROWS.min(segment.len * group - first);
            let tile = Queries { call: self, segment, kv_head, first, count, group };
            // SAFETY: tasks write the outputs of different rows or heads.
            unsafe { simd::with(self.isa, Attend::<F> { tile, format: PhantomData }) }
        });
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

    /// Reads a head, norms and rotates it.
    #[inline(always)]
    unsafe fn head<S: Simd>(&self, out: *mut f32, row: usize, at: usize, norm: Option<(Norm, *const u8)>) {
        let Attention { float, head_dim, rope, .. } = *self.what;
        read::<S>(self.qkv, float, row * self.what.row_width() + at, out, head_dim);
        if let Some((norm, weight)) = norm {
            let mut squares = S::splat(0.0);
            let mut total = 0.0;
            let whole = head_dim / S::LANES * S::LANES;
            for i in (0..whole).step_by(S::LANES) {
                let v = S::load(out.add(i));
                squares = S::fma(v, v, squares);
            }
            for i in whole..head_dim {
                total += *out.add(i) * *out.add(i);
            }
            let mean = (S::sum(squares) + total) / head_dim as f32;
            let factor = 1.0 / (mean + norm.eps).sqrt();
            for i in (0..whole).step_by(S::LANES) {
                let w = element::load::<S>(weight, norm.weight, i);
                S::store(out.add(i), S::mul(S::mul(S::load(out.add(i)), S::splat(factor)), w));
            }
            for i in whole..head_dim {
                *out.add(i) = *out.add(i) * factor * load1(weight, norm.weight, i);
            }
        }
        if let Some(rope) = rope {
            rotate(out, self.turns.add(row * rope.dims), rope);
        }
    }
}

#[inline(always)]
unsafe fn rotate(head: *mut f32, turns: *const f32, rope: Rope) {
    let half = rope.dims / 2;
    let (cos, sin) = (turns, turns.add(half));
    match rope.pairs {
        RotaryPairing::Halves => {
            for i in 0..half {
                let (a, b) = (*head.add(i), *head.add(half + i));
                *head.add(i) = a * *cos.add(i) - b * *sin.add(i);
                *head.add(half + i) = b * *cos.add(i) + a * *sin.add(i);
            }
        }
        RotaryPairing::Interleaved => {
            for i in 0..half {
                let (a, b) = (*head.add(2 * i), *head.add(2 * i + 1));
                *head.add(2 * i) = a * *cos.add(i) - b * *sin.add(i);
                *head.add(2 * i + 1) = b * *cos.add(i) + a * *sin.add(i);
            }
        }
    }
}

struct WriteRow<'a> {
    call: &'a Call<'a>,
    row: usize,
    position: i32,
    freqs: *const f32,
}

impl Work for WriteRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { call, row, .. } = self;
        let Attention { heads, kv_heads, head_dim, v_dim, float, pool, k_norm, rope, .. } = *call.what;
        if let Some(rope) = rope {
            let turns = call.turns.add(row * rope.dims);
            let half = rope.dims / 2;
            for i in 0..half {
                let (sin, cos) = (self.position as f32 * *self.freqs.add(i)).sin_cos();
                *turns.add(i) = cos * rope.magnitude;
                *turns.add(half + i) = sin * rope.magnitude;
            }
        }
        let slot = *call.slots.add(row) as usize;
        if slot >= call.what.blocks * call.what.block_size {
            return;
        }
        let buffer = scratch(head_dim.max(v_dim));
        for h in 0..kv_heads {
            let norm = k_norm.map(|norm| (norm, call.k_norm));
            call.head::<S>(buffer, row, (heads + h) * head_dim, norm);
            pool.write::<S>(call.k_pool, slot * kv_heads + h, buffer, head_dim);
            let at = row * call.what.row_width() + (heads + kv_heads) * head_dim + h * v_dim;
            read::<S>(call.qkv, float, at, buffer, v_dim);
            pool.write::<S>(call.v_pool, slot * kv_heads + h, buffer, v_dim);
        }
    }
}

/// Queries that share a kv head: row `first + i` is query `row / group`, head `row % group` of the group.
#[derive(Clone, Copy)]
struct Queries<'a> {
    call: &'a Call<'a>,
    segment: Segment,
    kv_head: usize,
    first: usize,
    count: usize,
    group: usize,
}

/// Up to eight rows read keys in place; for more, keys become panels.
struct Attend<'a, F> {
    tile: Queries<'a>,
    format: PhantomData<F>,
}

/// Where things lie in a task's scratch memory.
struct Room {
    /// Packed queries.
    q: *mut f32,
    /// Scores, then weights: `[rows][KEYS]`.
    scores: *mut f32,
    /// Results so far: `[rows][v_width]`.
    out: *mut f32,
    /// Values: `[KEYS][v_width]`.
    values: *mut f32,
    /// Keys decoded to a panel.
    panel: *mut f32,
    /// Keys whose rows are irregular, as stored.
    keys: *mut u8,
}

impl<F: Format> Work for Attend<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Attention { head_dim, v_dim, .. } = *self.tile.call.what;
        let k_width = head_dim.next_multiple_of(F::UNIT);
        let v_width = v_dim.next_multiple_of(S::LANES);
        let sizes = [
            ROWS * k_width,
            ROWS * KEYS,
            ROWS * v_width,
            KEYS * v_width,
            S::LANES * k_width,
            S::LANES * k_width,
        ];
        let mut at = scratch(sizes.iter().sum::<usize>() + head_dim);
        let mut places = [at; 6];
        for (place, size) in places.iter_mut().zip(sizes) {
            *place = at;
            at = at.add(size);
        }
        let [q, scores, out, values, panel, keys] = places;
        self.attend::<S>(&Room { q, scores, out, values, panel, keys: keys.cast() }, at, v_width);
    }
}

impl<F: Format> Attend<'_, F> {
    #[inline(always)]
    unsafe fn attend<S: Simd>(&self, room: &Room, buffer: *mut f32, v_width: usize) {
        let Queries { call, segment, kv_head, first, count, group } = self.tile;
        let Attention { heads, v_dim, window, sink_tokens, sinks, float, .. } = *call.what;
        self.pack_queries::<S>(room, buffer);
        // Running maximum and sum of each row.
        let (mut most, mut sum) = ([f32::NEG_INFINITY; ROWS], [0f32; ROWS]);
        if let Some(float) = sinks {
            for r in 0..count {
                most[r] = load1(call.sinks, float, kv_head * group + (first + r) % group);
                sum[r] = 1.0;
            }
        }
        // Rows that only fill up tiles are computed too, from zeros.
        let padded = count.next_multiple_of(panel_rows::<S>()).max(DIRECT_ROWS);
        std::ptr::write_bytes(room.out, 0, padded * v_width);
        std::ptr::write_bytes(room.scores.add(count * KEYS), 0, (padded - count) * KEYS);
        // Keys that row r sees, the kept ones aside.
        let sees = |r: usize| {
            let end = segment.first_position + (first + r) / group + 1;
            (window.map_or(0, |window| end.saturating_sub(window)), end)
        };
        let (begin, end) = (sees(0).0, sees(count - 1).1);
        let tile = begin / KEYS * KEYS;
        let tiles = || (0..sink_tokens.min(tile)).step_by(KEYS).chain((tile..end).step_by(KEYS));
        let mut slots = self.slots(tiles().next().unwrap_or(0), end);
        let mut following = tiles().skip(1);
        for start in tiles() {
            let next = following.next().map(|next| self.slots(next, end));
            if let Some(next) = &next {
                self.prefetch(next);
            }
            let within = |key: usize| key.clamp(start, start + KEYS);
            // Keys of this tile from which on nothing is missing, and those that are kept before them.
            let keys = (within(begin), within(end));
            let kept = (start, within(sink_tokens.min(begin)));
            self.score::<S>(
                room,
                (start, &slots),
                (if kept.1 > start { start } else { keys.0 }, keys.1.max(kept.1)),
            );
            let mut decay = [0f32; ROWS];
            for r in 0..count {
                let (from, to) = sees(r);
                let seen = Seen {
                    kept: within(sink_tokens.min(to)) - start,
                    from: within(from) - start,
                    to: within(to) - start,
                };
                decay[r] = self.weigh::<S>(room.scores.add(r * KEYS), seen, &mut most[r], &mut sum[r]);
            }
            self.add_values::<S>(room, (kept, keys), (start, &slots), &decay, v_width);
            slots = next.unwrap_or(slots);
        }
        for r in 0..count {
            let row = segment.first_row + (first + r) / group;
            let head = kv_head * group + (first + r) % group;
            let out = room.out.add(r * v_width);
            let factor = if sum[r] == 0.0 { 0.0 } else { 1.0 / sum[r] };
            for i in (0..v_width).step_by(S::LANES) {
                S::store(out.add(i), S::mul(S::load(out.add(i)), S::splat(factor)));
            }
            write::<S>(call.out, float, (row * heads + head) * v_dim, out, v_dim);
        }
    }

    /// Where the keys of a tile are, as far as they come before `end`.
    #[inline(always)]
    unsafe fn slots(&self, start: usize, end: usize) -> Slots {
        let mut slots = [0; KEYS];
        let block_size = self.tile.call.what.block_size;
        let mut key = start;
        while key < end.min(start + KEYS) {
            let first = self.tile.call.slot(&self.tile.segment, key);
            let block_end = (key / block_size + 1) * block_size;
            for next in key..block_end.min(start + KEYS) {
                *slots.get_unchecked_mut(next - start) = first + (next - key);
            }
            key = block_end;
        }
        slots
    }

    /// Prefetches a tile's keys and values: heads lie apart, which hides them from the machine's
    /// own prefetching.
    #[inline(always)]
    unsafe fn prefetch(&self, slots: &Slots) {
        let Queries { call, kv_head, .. } = self.tile;
        let Attention { head_dim, v_dim, kv_heads, pool, .. } = *call.what;
        for (pool_at, width) in [(call.k_pool, pool.bytes(head_dim)), (call.v_pool, pool.bytes(v_dim))] {
            for slot in slots {
                let head = pool_at.add((slot * kv_heads + kv_head) * width);
                for line in (0..width).step_by(LINE) {
                    simd::prefetch(head.add(line));
                }
            }
        }
    }

    /// Whether keys are decoded in registers.
    fn few(&self) -> bool {
        self.tile.count <= DIRECT_ROWS
    }

    /// `[tile of rows][step][row][4]`, scaled.
    #[inline(always)]
    unsafe fn pack_queries<S: Simd>(&self, room: &Room, buffer: *mut f32) {
        let Queries { call, segment, kv_head, first, count, group } = self.tile;
        let Attention { head_dim, q_norm, scale, .. } = *call.what;
        let width = head_dim.next_multiple_of(F::UNIT);
        let tile = if self.few() { direct_rows(count) } else { panel_rows::<S>() };
        for start in (0..count).step_by(tile) {
            let rows = tile.min(count - start);
            let mr = if self.few() { tile } else { last_rows(rows, tile) };
            let out = room.q.add(start * width);
            for r in 0..mr {
                let mut source = None;
                if r < rows {
                    let row = segment.first_row + (first + start + r) / group;
                    let head = kv_head * group + (first + start + r) % group;
                    call.head::<S>(buffer, row, head * head_dim, q_norm.map(|norm| (norm, call.q_norm)));
                    for i in 0..head_dim {
                        *buffer.add(i) *= scale;
                    }
                    source = Some((buffer.cast_const().cast(), Float::F32));
                }
                pack_row::<F>(out, (r, mr), source, (0, head_dim), head_dim);
            }
        }
    }

    /// Scores of all rows with the keys of a tile, as far as they lie in `from..to`.
    #[inline(always)]
    unsafe fn score<S: Simd>(
        &self,
        room: &Room,
        (start, slots): (usize, &Slots),
        (from, to): (usize, usize),
    ) {
        let Attention { head_dim, .. } = *self.tile.call.what;
        let count = self.tile.count;
        let width = head_dim.next_multiple_of(F::UNIT);
        for column in (0..KEYS).step_by(S::LANES) {
            let key = start + column;
            if key + S::LANES <= from || key >= to {
                continue;
            }
            let tile = self.key_tile::<S>(room, (key, &slots[column..]), (from, to));
            let sums = Sums { to: room.scores.add(column), stride: KEYS, merge: Merge::Replace };
            if self.few() {
                direct::<S, F>(direct_rows(count), room.q, tile, sums);
                continue;
            }
            S::call(Fill::<F> { panel: room.panel, tile, format: PhantomData });
            for first in (0..count).step_by(panel_rows::<S>()) {
                let rows = panel_rows::<S>().min(count - first);
                let sums = Sums { to: sums.to.add(first * KEYS), ..sums };
                panel::<S>(rows, room.q.add(first * width), room.panel, tile.steps::<F>(), sums);
            }
        }
    }

    /// `LANES` keys from `key` on. Whole blocks are read in place.
    #[inline(always)]
    unsafe fn key_tile<S: Simd>(
        &self,
        room: &Room,
        (key, slots): (usize, &[usize]),
        (from, to): (usize, usize),
    ) -> Tile {
        let Queries { call, kv_head, .. } = self.tile;
        let Attention { head_dim, kv_heads, block_size, pool, .. } = *call.what;
        let index = |i: usize| *slots.get_unchecked(i) * kv_heads + kv_head;
        let mut tile = Tile {
            words: room.keys,
            stride: head_dim.div_ceil(F::UNIT) * 16,
            scales: std::ptr::null(),
            biases: std::ptr::null(),
            group_stride: 0,
            groups: 1,
            units_per_group: head_dim.div_ceil(F::UNIT),
        };
        let float = match pool {
            Store::Float(float) => float,
            Store::Packed(_) => {
                std::ptr::write_bytes(room.keys, 0, S::LANES * tile.stride);
                for i in 0..S::LANES {
                    if (from..to).contains(&(key + i)) {
                        let row = room.keys.add(i * tile.stride).cast();
                        pool.read::<S>(call.k_pool, index(i), row, head_dim);
                    }
                }
                return tile;
            }
        };
        let address = |i: usize| float.at(call.k_pool, index(i) * head_dim);
        if block_size.is_multiple_of(S::LANES) && head_dim.is_multiple_of(F::UNIT) {
            tile.words = address(0);
            tile.stride = kv_heads * head_dim * float.bytes();
            return tile;
        }
        std::ptr::write_bytes(room.keys, 0, S::LANES * tile.stride);
        for i in 0..S::LANES {
            if (from..to).contains(&(key + i)) {
                let row = room.keys.add(i * tile.stride);
                std::ptr::copy_nonoverlapping(address(i), row, head_dim * float.bytes());
            }
        }
        tile
    }

    /// Turns a row's scores into weights and returns the factor for what was summed before.
    #[inline(always)]
    unsafe fn weigh<S: Simd>(&self, scores: *mut f32, seen: Seen, most: &mut f32, sum: &mut f32) -> f32 {
        if seen.from.max(seen.kept) >= seen.to && seen.kept == 0 {
            std::ptr::write_bytes(scores, 0, KEYS);
            return 1.0;
        }
        if let Some(cap) = self.tile.call.what.softcap {
            for i in (0..KEYS).step_by(S::LANES) {
                let v = S::mul(S::load(scores.add(i)), S::splat(1.0 / cap));
                S::store(scores.add(i), S::mul(math::tanh::<S>(v), S::splat(cap)));
            }
        }
        for i in (seen.kept..seen.from).chain(seen.to.max(seen.kept)..KEYS) {
            *scores.add(i) = f32::NEG_INFINITY;
        }
        let mut highest = S::load(scores);
        for i in (S::LANES..KEYS).step_by(S::LANES) {
            highest = S::max(highest, S::load(scores.add(i)));
        }
        let top = most.max(S::largest(highest));
        let mut total = S::splat(0.0);
        for i in (0..KEYS).step_by(S::LANES) {
            let weight = math::exp::<S>(S::sub(S::load(scores.add(i)), S::splat(top)));
            total = S::add(total, weight);
            S::store(scores.add(i), weight);
        }
        let mut lanes = [0f32; 16];
        S::store(lanes.as_mut_ptr(), math::exp::<S>(S::splat(*most - top)));
        *most = top;
        *sum = *sum * lanes[0] + S::sum(total);
        lanes[0]
    }

    /// `out = out * decay + weights @ values`, over the keys `from..to` of the tile.
    #[inline(always)]
    unsafe fn add_values<S: Simd>(
        &self,
        room: &Room,
        (kept, (from, to)): ((usize, usize), (usize, usize)),
        (start, slots): (usize, &Slots),
        decay: &[f32; ROWS],
        v_width: usize,
    ) {
        let Queries { call, kv_head, count, .. } = self.tile;
        let Attention { v_dim, kv_heads, pool, .. } = *call.what;
        // Few rows read f32 values in place; for more, a copy without gaps is kinder to the cache.
        let in_place = self.few() && pool == Store::Float(Float::F32) && v_dim == v_width;
        let mut values = [std::ptr::null::<f32>(); KEYS];
        // Weights of keys between are zeros, and so is what stands for their values: they may be missing.
        for key in kept.1..(if from < to { from } else { kept.1 }) {
            let zeros = room.values.add((key - start) * v_width);
            std::ptr::write_bytes(zeros, 0, v_width);
            values[key - start] = zeros;
        }
        for key in (kept.0..kept.1).chain(from..to) {
            let index = *slots.get_unchecked(key - start) * kv_heads + kv_head;
            let pointer = &mut values[key - start];
            if in_place {
                *pointer = call.v_pool.cast_const().cast::<f32>().add(index * v_dim);
                continue;
            }
            let copy = room.values.add((key - start) * v_width);
            pool.read::<S>(call.v_pool, index, copy, v_dim);
            for i in v_dim..v_width {
                *copy.add(i) = 0.0;
            }
            *pointer = copy;
        }
        let end = if from < to { to } else { kept.1.max(start) };
        let keys = (if kept.1 > kept.0 { 0 } else { from - start }, end - start);
        for first in (0..count).step_by(panel_rows::<S>()) {
            for at in (0..v_width).step_by(4 * S::LANES) {
                let part = Part { room, values: &values, keys, first, at, v_width, decay };
                let vectors = (v_width - at) / S::LANES;
                match panel_rows::<S>().min(count - first) {
                    1 => mix::<S, 1>(part, vectors),
                    2 => mix::<S, 2>(part, vectors),
                    3 => mix::<S, 3>(part, vectors),
                    _ => mix::<S, 6>(part, vectors),
                }
            }
        }
    }
}

/// Keys of a tile that a row sees: the first `kept`, and those in `from..to`.
#[derive(Clone, Copy)]
struct Seen {
    kept: usize,
    from: usize,
    to: usize,
}
