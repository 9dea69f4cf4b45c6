//! The first phase: angles of all rows, and their keys and values to their slots. Both phases read a head here.

use super::{Attention, Call, Norm, Rope, RotaryPairing, scratch};
use crate::kernels::element::{self, load1, read};
use crate::kernels::pool;
use crate::kernels::simd::{self, Simd, Work};

impl Call<'_> {
    /// First phase: angles of all rows, keys and values to their slots, zeros for rows of no segment.
    pub(super) unsafe fn write_rows(&self, positions: *const i32, freqs: *const f32, covered: &[bool]) {
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

    /// Reads a head, norms and rotates it.
    #[inline(always)]
    pub(super) unsafe fn head<S: Simd>(
        &self,
        out: *mut f32,
        row: usize,
        at: usize,
        norm: Option<(Norm, *const u8)>,
    ) {
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
