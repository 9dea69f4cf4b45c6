//! The second phase: attention of some queries that share a kv head, one tile of keys after another.

mod mix;

use std::marker::PhantomData;

use super::{Attention, Call, KEYS, ROWS, Segment, Store, scratch};
use crate::element::{Float, load1, read, write};
use crate::gemm::*;
use crate::math;
use crate::simd::{self, Simd, Work};
use mix::{Part, mix};

/// Bytes that the cache takes at a time.
const LINE: usize = 64;

/// Where each key of a tile is in its pool.
type Slots = [usize; KEYS];

/// Queries that share a kv head: row `first + i` is query `row / group`, head `row % group` of the group.
#[derive(Clone, Copy)]
pub(super) struct Queries<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) segment: Segment,
    pub(super) kv_head: usize,
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) group: usize,
}

/// Up to eight rows read keys in place; for more, keys become panels.
pub(super) struct Attend<'a, F> {
    pub(super) tile: Queries<'a>,
    pub(super) format: PhantomData<F>,
}

/// Where things lie in a task's scratch memory.
struct Room {
    /// Packed queries, and absorbed ones.
    q: [*mut f32; 2],
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

/// What scores are sums over: keys, and with a latent also values.
#[derive(Clone, Copy)]
struct Factor {
    /// Packed queries for it.
    q: *mut f32,
    pool: *const u8,
    /// Elements of a head in the pool.
    width: usize,
    merge: Merge,
}

impl<F: Format> Work for Attend<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Attention { head_dim, v_dim, latent, .. } = *self.tile.call.what;
        let k_width = head_dim.next_multiple_of(F::UNIT);
        let v_width = v_dim.next_multiple_of(S::LANES);
        let latent_width = if latent.is_some() { v_dim.next_multiple_of(F::UNIT) } else { 0 };
        let sizes = [
            ROWS * k_width,
            ROWS * latent_width,
            ROWS * KEYS,
            ROWS * v_width,
            KEYS * v_width,
            S::LANES * k_width.max(latent_width),
            S::LANES * k_width.max(latent_width),
        ];
        let mut at = scratch(sizes.iter().sum::<usize>() + head_dim.max(v_dim));
        let mut places = [at; 7];
        for (place, size) in places.iter_mut().zip(sizes) {
            *place = at;
            at = at.add(size);
        }
        let [q, absorbed, scores, out, values, panel, keys] = places;
        let room = Room { q: [q, absorbed], scores, out, values, panel, keys: keys.cast() };
        self.attend::<S>(&room, at, v_width);
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
            let row = (first + r) / group;
            let own = segment.first_position + row + 1;
            (window.map_or(0, |window| own.saturating_sub(window)), call.end(&segment, row))
        };
        let (begin, end) = (sees(0).0, (0..count).map(|r| sees(r).1).max().unwrap_or(0));
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
                let row = (first + r) / group;
                let own = segment.first_position + row + 1;
                let seen = Seen {
                    row,
                    own: within(own.max(from)) - start,
                    start,
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

    /// The first factor, and the second where there is one.
    fn factors(&self, room: &Room) -> (Factor, Option<Factor>) {
        let Call { what, k_pool, v_pool, .. } = *self.tile.call;
        let [q, absorbed] = room.q;
        let keys = Factor { q, pool: k_pool, width: what.head_dim, merge: Merge::Replace };
        let values = Factor { q: absorbed, pool: v_pool, width: what.v_dim, merge: Merge::Add };
        (keys, what.latent.map(|_| values))
    }

    /// `[tile of rows][step][row][4]`, scaled.
    #[inline(always)]
    unsafe fn pack_queries<S: Simd>(&self, room: &Room, buffer: *mut f32) {
        let Queries { call, segment, kv_head, first, count, group } = self.tile;
        let Attention { heads, head_dim, v_dim, float, latent, scale, .. } = *call.what;
        let tile = if self.few() { direct_rows(count) } else { panel_rows::<S>() };
        for start in (0..count).step_by(tile) {
            let rows = tile.min(count - start);
            let mr = if self.few() { tile } else { last_rows(rows, tile) };
            for r in 0..mr {
                let row = segment.first_row + (first + start + r) / group;
                let head = kv_head * group + (first + start + r) % group;
                if r < rows {
                    call.query::<S>(buffer, row, head);
                }
                let source = (r < rows).then_some(buffer);
                let out = room.q[0].add(start * head_dim.next_multiple_of(F::UNIT));
                self.pack_query(out, (r, mr), source, head_dim, scale);
                if latent.is_some() {
                    if r < rows {
                        read::<S>(call.latent[0], float, (row * heads + head) * v_dim, buffer, v_dim);
                    }
                    let out = room.q[1].add(start * v_dim.next_multiple_of(F::UNIT));
                    self.pack_query(out, (r, mr), source, v_dim, scale);
                }
            }
        }
    }

    /// Scales a query in place and packs it.
    #[inline(always)]
    unsafe fn pack_query(
        &self,
        out: *mut f32,
        place: (usize, usize),
        source: Option<*mut f32>,
        width: usize,
        scale: f32,
    ) {
        if let Some(source) = source {
            for i in 0..width {
                *source.add(i) *= scale;
            }
        }
        let source = source.map(|source| (source.cast_const().cast(), Float::F32));
        pack_row::<F>(out, place, source, (0, width), width);
    }

    /// Scores of all rows with the keys of a tile, as far as they lie in `from..to`.
    #[inline(always)]
    unsafe fn score<S: Simd>(
        &self,
        room: &Room,
        (start, slots): (usize, &Slots),
        (from, to): (usize, usize),
    ) {
        let (keys, values) = self.factors(room);
        for column in (0..KEYS).step_by(S::LANES) {
            let key = start + column;
            if key + S::LANES <= from || key >= to {
                continue;
            }
            let at = (key, &slots[column..]);
            self.score_by::<S>(room, keys, at, (from, to), column);
            if let Some(values) = values {
                self.score_by::<S>(room, values, at, (from, to), column);
            }
        }
    }

    /// One factor of `LANES` scores.
    #[inline(always)]
    unsafe fn score_by<S: Simd>(
        &self,
        room: &Room,
        factor: Factor,
        at: (usize, &[usize]),
        within: (usize, usize),
        column: usize,
    ) {
        let count = self.tile.count;
        let tile = self.key_tile::<S>(room, factor, at, within);
        let sums = Sums { to: room.scores.add(column), stride: KEYS, merge: factor.merge };
        if self.few() {
            return direct::<S, F>(direct_rows(count), factor.q, tile, sums);
        }
        let width = factor.width.next_multiple_of(F::UNIT);
        S::call(Fill::<F> { panel: room.panel, tile, format: PhantomData });
        for first in (0..count).step_by(panel_rows::<S>()) {
            let rows = panel_rows::<S>().min(count - first);
            let sums = Sums { to: sums.to.add(first * KEYS), ..sums };
            panel::<S>(rows, factor.q.add(first * width), room.panel, tile.steps::<F>(), sums);
        }
    }

    /// `LANES` keys from `key` on. Whole blocks are read in place.
    #[inline(always)]
    unsafe fn key_tile<S: Simd>(
        &self,
        room: &Room,
        Factor { pool: base, width, .. }: Factor,
        (key, slots): (usize, &[usize]),
        (from, to): (usize, usize),
    ) -> Tile {
        let Queries { call, kv_head, .. } = self.tile;
        let Attention { kv_heads, block_size, pool, .. } = *call.what;
        let index = |i: usize| *slots.get_unchecked(i) * kv_heads + kv_head;
        let mut tile = Tile {
            words: room.keys,
            stride: width.div_ceil(F::UNIT) * 16,
            scales: std::ptr::null(),
            biases: std::ptr::null(),
            group_stride: 0,
            groups: 1,
            units_per_group: width.div_ceil(F::UNIT),
        };
        let float = match pool {
            Store::Float(float) => float,
            Store::Packed(_) => {
                std::ptr::write_bytes(room.keys, 0, S::LANES * tile.stride);
                for i in 0..S::LANES {
                    if (from..to).contains(&(key + i)) {
                        let row = room.keys.add(i * tile.stride).cast();
                        pool.read::<S>(base, index(i), row, width);
                    }
                }
                return tile;
            }
        };
        let address = |i: usize| float.at(base, index(i) * width);
        if block_size.is_multiple_of(S::LANES) && width.is_multiple_of(F::UNIT) {
            tile.words = address(0);
            tile.stride = kv_heads * width * float.bytes();
            return tile;
        }
        std::ptr::write_bytes(room.keys, 0, S::LANES * tile.stride);
        for i in 0..S::LANES {
            if (from..to).contains(&(key + i)) {
                let row = room.keys.add(i * tile.stride);
                std::ptr::copy_nonoverlapping(address(i), row, width * float.bytes());
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
        // Empty where rows have no ends.
        let hidden = if self.tile.segment.shares_end { 0..0 } else { seen.own..seen.to };
        for i in hidden {
            if self.tile.call.hides(&self.tile.segment, seen.row, seen.start + i) {
                *scores.add(i) = f32::NEG_INFINITY;
            }
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

/// Keys of a tile that a row sees: the first `kept`, and those in `from..to`, of which some from `own` on may be hidden.
#[derive(Clone, Copy)]
struct Seen {
    /// The row's number in its segment.
    row: usize,
    /// The tile's first key.
    start: usize,
    own: usize,
    kept: usize,
    from: usize,
    to: usize,
}
