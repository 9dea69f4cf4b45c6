//! The first phase: angles of all rows, and their keys and values to their slots. Both phases read a head here.

use super::{Attention, Call, Latent, Norm, Projected, Rope, RotaryPairing, scratch};
use crate::element::{self, Float, load1, read};
use crate::pool;
use crate::simd::{self, Simd, Work};

impl Call<'_> {
    /// First phase: angles of all rows, keys and values to their slots, zeros for rows of no segment.
    pub(super) unsafe fn write_rows(&self, angles: Angles, covered: &[bool]) {
        let Attention { rows, heads, v_dim, float, .. } = *self.what;
        let one = |row: usize| simd::with(self.isa, WriteRow { call: self, row, angles: &angles });
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
        let Attention { float, head_dim, .. } = *self.what;
        read::<S>(self.qkv, float, row * self.what.row_width() + at, out, head_dim);
        if let Some((norm, weight)) = norm {
            normed::<S>(out, head_dim, (norm.eps, 1.0), Some((norm.weight, weight)));
        }
        self.rotated(out, row);
    }

    /// A head's query: with a latent, the part that rotates.
    #[inline(always)]
    pub(super) unsafe fn query<S: Simd>(&self, out: *mut f32, row: usize, head: usize) {
        let Attention { heads, head_dim, float, q_norm, latent, .. } = *self.what;
        let Some(Latent { nope_dim, .. }) = latent else {
            return self.head::<S>(out, row, head * head_dim, q_norm.map(|norm| (norm, self.q_norm)));
        };
        let at = (row * heads + head) * (nope_dim + head_dim) + nope_dim;
        read::<S>(self.qkv, float, at, out, head_dim);
        self.rotated(out, row);
    }

    #[inline(always)]
    unsafe fn rotated(&self, head: *mut f32, row: usize) {
        if let Some(rope) = self.what.rope {
            rotate(head, self.turns.add(row * rope.dims), rope);
        }
    }
}

/// RMS norm of `width` elements in place, times `scale` and, where there is one, a weight.
#[inline(always)]
unsafe fn normed<S: Simd>(
    x: *mut f32,
    width: usize,
    (eps, scale): (f32, f32),
    weight: Option<(Float, *const u8)>,
) {
    let mut squares = S::splat(0.0);
    let mut total = 0.0;
    let whole = width / S::LANES * S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        let v = S::load(x.add(i));
        squares = S::fma(v, v, squares);
    }
    for i in whole..width {
        total += *x.add(i) * *x.add(i);
    }
    let mean = (S::sum(squares) + total) / width as f32;
    let factor = scale / (mean + eps).sqrt();
    let Some((float, weight)) = weight else {
        for i in (0..whole).step_by(S::LANES) {
            S::store(x.add(i), S::mul(S::load(x.add(i)), S::splat(factor)));
        }
        for i in whole..width {
            *x.add(i) *= factor;
        }
        return;
    };
    for i in (0..whole).step_by(S::LANES) {
        let w = element::load::<S>(weight, float, i);
        S::store(x.add(i), S::mul(S::mul(S::load(x.add(i)), S::splat(factor)), w));
    }
    for i in whole..width {
        *x.add(i) = *x.add(i) * factor * load1(weight, float, i);
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

/// What rows turn by.
pub(super) struct Angles {
    /// `[axes, rows]`
    pub(super) positions: *const i32,
    /// Radians per position of each pair.
    pub(super) freqs: *const f32,
    /// Which position each pair turns by; null if all turn by the first.
    pub(super) axes: *const i32,
}

// SAFETY: only read.
unsafe impl Sync for Angles {}

impl Angles {
    /// Of a pair of one of `rows` rows.
    #[inline(always)]
    unsafe fn of(&self, pair: usize, row: usize, rows: usize) -> f32 {
        let axis = if self.axes.is_null() { 0 } else { (*self.axes.add(pair)).clamp(0, 2) as usize };
        *self.positions.add(axis * rows + row) as f32 * *self.freqs.add(pair)
    }
}

struct WriteRow<'a> {
    call: &'a Call<'a>,
    row: usize,
    angles: &'a Angles,
}

impl Work for WriteRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { call, row, angles } = self;
        let Attention { rows, heads, kv_heads, head_dim, v_dim, projected, float, pool, .. } = *call.what;
        let Attention { k_norm, v_norm, rope, .. } = *call.what;
        if let Some(rope) = rope {
            let turns = call.turns.add(row * rope.dims);
            let half = rope.dims / 2;
            for i in 0..half {
                let (sin, cos) = angles.of(i, row, rows).sin_cos();
                *turns.add(i) = cos * rope.magnitude;
                *turns.add(half + i) = sin * rope.magnitude;
            }
        }
        let slot = *call.slots.add(row) as usize;
        if slot >= call.what.blocks * call.what.block_size {
            return;
        }
        let buffer = scratch(head_dim.max(v_dim));
        if let Some(latent) = call.what.latent {
            let at = row * (v_dim + head_dim);
            let [_, latents, weight] = call.latent;
            read::<S>(latents, float, at, buffer, v_dim);
            let Norm { weight: stored, eps } = latent.norm;
            normed::<S>(buffer, v_dim, (eps, latent.scale), Some((stored, weight)));
            pool.write::<S>(call.v_pool, slot, buffer, v_dim);
            read::<S>(latents, float, at + v_dim, buffer, head_dim);
            call.rotated(buffer, row);
            return pool.write::<S>(call.k_pool, slot, buffer, head_dim);
        }
        let before_values = match projected {
            Projected::QueriesKeysValues => (heads + kv_heads) * head_dim,
            Projected::QueriesAndKeys => heads * head_dim,
            Projected::Queries => return,
        };
        for h in 0..kv_heads {
            let norm = k_norm.map(|norm| (norm, call.k_norm));
            call.head::<S>(buffer, row, (heads + h) * head_dim, norm);
            pool.write::<S>(call.k_pool, slot * kv_heads + h, buffer, head_dim);
            let at = row * call.what.row_width() + before_values + h * v_dim;
            read::<S>(call.qkv, float, at, buffer, v_dim);
            if let Some(eps) = v_norm {
                normed::<S>(buffer, v_dim, (eps, 1.0), None);
            }
            pool.write::<S>(call.v_pool, slot * kv_heads + h, buffer, v_dim);
        }
    }
}
