//! RWKV-7's recurrence, with everything between its projections: decays, rates, values mixed with the first layer's,
//! keys of length one, the norm of each head, the bonus and the output's gate.
//!
//! A head's state `S` becomes `S · diag(w) − (S · k̂)(k̂ ∘ a)ᵀ + v kᵀ`, and what is read is `S · r`.
//! Source: arXiv 2503.14456 §4.
//!
//! Invariant: rows of a run are taken one after the other, so a row's bits do not depend on how its sequence was
//! cut into steps, nor on other sequences.

use std::cell::RefCell;

use super::math;
use super::pool;
use super::recurrence::dot;
use super::runs::{Run, chains, clear, runs};
use super::simd::{self, Simd, Work};

/// A decay is `exp(−this · sigmoid(w))`: `e^(−1/2)`.
const DECAY: f32 = 0.606_531;
/// Of the norm of each head's output.
const NORM_EPS: f32 = 64e-5;
/// Least length that a key is divided by.
const LEAST_LENGTH: f32 = 1e-7;

/// Inputs, all f32 but the runs: receptance, decay, key, value, rate and gate, `[rows, heads * dim]` each, decay and rate
/// before their sigmoids; `k_k`, `k_a`, `r_k`, the norm's weight and bias, `[heads, dim]` each; runs `[runs, 4]`; the pool
/// `[slots, heads, dim, dim]`; with `mixes_values` the values' shares before their sigmoid and the first layer's values,
/// `[rows, heads * dim]` each.
/// Outputs: `[rows, heads * dim]` and the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Wkv {
    pub rows: usize,
    pub heads: usize,
    pub dim: usize,
    pub mixes_values: bool,
    pub runs: usize,
    pub slots: usize,
}

/// One head of runs that follow each other.
struct Head<'a> {
    what: &'a Wkv,
    inputs: &'a [*const u8],
    pool: *mut f32,
    out: *mut f32,
    chain: &'a [Run],
    head: usize,
}

/// What tasks share.
struct Shared<'a> {
    inputs: &'a [*const u8],
    pool: *mut f32,
    out: *mut f32,
}

// SAFETY: tasks write different heads or different slots.
unsafe impl Sync for Shared<'_> {}

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Places of a row's vectors in a task's scratch memory.
#[derive(Clone, Copy)]
struct Room {
    decay: *mut f32,
    key: *mut f32,
    removed: *mut f32,
    replaced: *mut f32,
    value: *mut f32,
    /// Products of receptance, key and bonus.
    bonus: *mut f32,
}

impl Wkv {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8]) {
        let (runs, covered) = runs(inputs[11].cast(), self.runs, self.rows, self.slots);
        clear(outputs[0].cast(), self.heads * self.dim, &covered);
        let shared = Shared { inputs, pool: outputs[1].cast(), out: outputs[0].cast() };
        let (isa, chains) = (simd::isa(), chains(&runs));
        pool::run(chains.len() * self.heads, |task| {
            let Shared { inputs, pool, out } = &shared;
            let (chain, head) = (chains[task / self.heads], task % self.heads);
            simd::with(isa, Head { what: self, inputs, pool: *pool, out: *out, chain, head })
        });
    }
}

impl Work for Head<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Wkv { heads, dim, .. } = *self.what;
        // Room for whole vectors.
        let width = dim.next_multiple_of(S::LANES);
        let scratch = SCRATCH.with_borrow_mut(|scratch| {
            scratch.reserve((6 * width).saturating_sub(scratch.len()));
            scratch.as_mut_ptr()
        });
        let [decay, key, removed, replaced, value, bonus] =
            [0, 1, 2, 3, 4, 5].map(|at| scratch.add(at * width));
        let room = Room { decay, key, removed, replaced, value, bonus };
        let state_in = |slot: usize| self.pool.add((slot * heads + self.head) * dim * dim);
        for run in self.chain {
            let state = state_in(run.slot);
            match run.from {
                None => std::ptr::write_bytes(state, 0, dim * dim),
                Some(from) if from != run.slot => {
                    std::ptr::copy_nonoverlapping(state_in(from), state, dim * dim)
                }
                Some(_) => {}
            }
            for row in run.first_row..run.first_row + run.len {
                let bonus = self.prepare::<S>(row, &room);
                self.advance::<S>(row, state, &room, bonus);
            }
        }
    }
}

impl Head<'_> {
    /// This head's part of a row's vector number `input`.
    #[inline(always)]
    unsafe fn of_row(&self, input: usize, row: usize) -> *const f32 {
        let Wkv { heads, dim, .. } = *self.what;
        self.inputs[input].cast::<f32>().add((row * heads + self.head) * dim)
    }

    /// This head's part of weights number `input`.
    #[inline(always)]
    unsafe fn of_head(&self, input: usize) -> *const f32 {
        self.inputs[input].cast::<f32>().add(self.head * self.what.dim)
    }

    /// Fills the room with a row's vectors, and returns the factor of its value in the output.
    #[inline(always)]
    unsafe fn prepare<S: Simd>(&self, row: usize, room: &Room) -> f32 {
        let dim = self.what.dim;
        let [receptance, decay, key, value, rate] = [0, 1, 2, 3, 4].map(|input| self.of_row(input, row));
        let [k_k, k_a, r_k] = [6, 7, 8].map(|input| self.of_head(input));
        let mut at = 0;
        while at < dim {
            let n = (dim - at).min(S::LANES);
            let key = read::<S>(key.add(at), n);
            let rate = math::sigmoid::<S>(read::<S>(rate.add(at), n));
            let share = S::fma(S::sub(rate, S::splat(1.0)), read::<S>(k_a.add(at), n), S::splat(1.0));
            let written = S::mul(key, share);
            let mut value = read::<S>(value.add(at), n);
            if self.what.mixes_values {
                let share = math::sigmoid::<S>(read::<S>(self.of_row(13, row).add(at), n));
                let first = read::<S>(self.of_row(14, row).add(at), n);
                value = S::fma(S::sub(first, value), share, value);
            }
            let decay = math::sigmoid::<S>(read::<S>(decay.add(at), n));
            let bonus = S::mul(read::<S>(receptance.add(at), n), written);
            S::store(room.decay.add(at), math::exp::<S>(S::mul(decay, S::splat(-DECAY))));
            S::store(room.key.add(at), written);
            S::store(room.removed.add(at), S::mul(key, read::<S>(k_k.add(at), n)));
            S::store(room.replaced.add(at), rate);
            S::store(room.value.add(at), value);
            S::store(room.bonus.add(at), S::mul(bonus, read::<S>(r_k.add(at), n)));
            at += S::LANES;
        }
        let (mut squares, mut bonus) = (0.0, 0.0);
        for i in 0..dim {
            squares += *room.removed.add(i) * *room.removed.add(i);
            bonus += *room.bonus.add(i);
        }
        let factor = 1.0 / squares.sqrt().max(LEAST_LENGTH);
        for i in 0..dim {
            *room.removed.add(i) *= factor;
            *room.replaced.add(i) *= -*room.removed.add(i);
        }
        bonus
    }

    /// Brings the state to the row, and writes what is read from it.
    #[inline(always)]
    unsafe fn advance<S: Simd>(&self, row: usize, state: *mut f32, room: &Room, bonus: f32) {
        let dim = self.what.dim;
        let out = self.out.add((row * self.what.heads + self.head) * dim);
        let receptance = self.of_row(0, row);
        let mut sum = 0.0;
        for i in 0..dim {
            let state = state.add(i * dim);
            let known = dot::<S>(state, room.removed, dim);
            let read = write_read::<S>(state, (room, *room.value.add(i), known), receptance, dim);
            *out.add(i) = read;
            sum += read;
        }
        let mean = sum / dim as f32;
        let mut squares = 0.0;
        for i in 0..dim {
            squares += (*out.add(i) - mean) * (*out.add(i) - mean);
        }
        let factor = 1.0 / (squares / dim as f32 + NORM_EPS).sqrt();
        let [weight, bias] = [9, 10].map(|input| self.of_head(input));
        let gate = self.of_row(5, row);
        for i in 0..dim {
            let normed = (*out.add(i) - mean) * factor * *weight.add(i) + *bias.add(i);
            *out.add(i) = (normed + bonus * *room.value.add(i)) * *gate.add(i);
        }
    }
}

/// `n` values, and zeros after them.
#[inline(always)]
unsafe fn read<S: Simd>(from: *const f32, n: usize) -> S::F {
    if n == S::LANES {
        return S::load(from);
    }
    let mut lanes = [0f32; 16];
    std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), n);
    S::load(lanes.as_ptr())
}

/// `state = state · decay + replaced · known + key · value`, and its product with the receptance.
#[inline(always)]
unsafe fn write_read<S: Simd>(
    state: *mut f32,
    (room, value, known): (&Room, f32, f32),
    receptance: *const f32,
    n: usize,
) -> f32 {
    let mut sum = S::splat(0.0);
    let whole = n / S::LANES * S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        let kept = S::mul(S::load(state.add(i)), S::load(room.decay.add(i)));
        let kept = S::fma(S::load(room.replaced.add(i)), S::splat(known), kept);
        let next = S::fma(S::load(room.key.add(i)), S::splat(value), kept);
        S::store(state.add(i), next);
        sum = S::fma(next, S::load(receptance.add(i)), sum);
    }
    let mut total = S::sum(sum);
    for i in whole..n {
        let kept = S::fma1(*room.replaced.add(i), known, *state.add(i) * *room.decay.add(i));
        let next = S::fma1(*room.key.add(i), value, kept);
        *state.add(i) = next;
        total = S::fma1(next, *receptance.add(i), total);
    }
    total
}
