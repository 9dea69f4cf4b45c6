//! Linear recurrences with a matrix of state for each head: Mamba-2's and the gated delta rule.
//!
//! For each row the state decays as a whole, one outer product is written to it, and one row is read from it.
//! Sources: arXiv 2405.21060 §3 and 5; arXiv 2412.06464 §3.
//!
//! Invariant: rows of a run are taken one after the other, so a row's bits do not depend on how its sequence was
//! cut into steps, nor on other sequences.

use std::cell::RefCell;

use super::math;
use super::pool;
use super::runs::{Run, chains, clear, runs};
use super::simd::{self, Simd, Work};

/// Inputs, all f32 but the runs: convolved rows `[rows, mixed]`; the projection they came from, `[rows, projected]`,
/// which also holds gates and steps; `a_log` and `dt_bias`, `[heads]`; `third`; runs `[runs, 4]`; the pool
/// `[slots, heads, value_dim, key_dim]`.
/// Outputs: `[rows, heads * value_dim]` and the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    pub rule: Rule,
    pub rows: usize,
    /// Heads that have keys and queries of their own; divides `heads`.
    pub key_heads: usize,
    pub heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Width of a convolved row.
    pub mixed: usize,
    /// Where values, keys and queries begin in it.
    pub values: usize,
    pub keys: usize,
    pub queries: usize,
    /// Width of a projected row.
    pub projected: usize,
    /// Where in it the output's gate begins, `heads * value_dim`, and the step of each head.
    pub gate: usize,
    pub step: usize,
    pub runs: usize,
    pub slots: usize,
}

/// What is written for a key and a value, and what becomes of what was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// `S = e^(−a·Δt) S + Δt·v·kᵀ`, `y = (S q + d·v) · silu(gate)`; the step is kept within limits, and `third`
    /// is `d`, `[heads]`.
    StateSpace { low: f32, high: f32 },
    /// `S = e^(−a·Δt) S; S += β·(v − S k)·kᵀ`, `y = norm(S q) · silu(gate)`, with keys and queries of length one and
    /// queries divided by `√key_dim`; β begins at `write` in a projected row, and `third` is the norm's weight,
    /// `[value_dim]`.
    Delta { write: usize, eps: f32 },
}

/// Added to the square of a key's or query's length.
const LENGTH_EPS: f32 = 1e-6;

/// One head of runs that follow each other.
struct Head<'a> {
    what: &'a Recurrence,
    buffers: Buffers,
    chain: &'a [Run],
    head: usize,
}

#[derive(Clone, Copy)]
struct Buffers {
    mixed: *const f32,
    projected: *const f32,
    a_log: *const f32,
    dt_bias: *const f32,
    third: *const f32,
    pool: *mut f32,
    out: *mut f32,
}

// SAFETY: tasks write different heads or different slots.
unsafe impl Sync for Buffers {}

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl Recurrence {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8]) {
        let (runs, covered) = runs(inputs[5].cast(), self.runs, self.rows, self.slots);
        clear(outputs[0].cast(), self.heads * self.value_dim, &covered);
        let buffers = Buffers {
            mixed: inputs[0].cast(),
            projected: inputs[1].cast(),
            a_log: inputs[2].cast(),
            dt_bias: inputs[3].cast(),
            third: inputs[4].cast(),
            pool: outputs[1].cast(),
            out: outputs[0].cast(),
        };
        let (isa, chains) = (simd::isa(), chains(&runs));
        pool::run(chains.len() * self.heads, |task| {
            let buffers = &buffers;
            let (chain, head) = (chains[task / self.heads], task % self.heads);
            simd::with(isa, Head { what: self, buffers: *buffers, chain, head })
        });
    }
}

impl Work for Head<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Recurrence { heads, key_dim, value_dim, .. } = *self.what;
        let size = value_dim * key_dim;
        let scratch = SCRATCH.with_borrow_mut(|scratch| {
            scratch.reserve((2 * key_dim).saturating_sub(scratch.len()));
            scratch.as_mut_ptr()
        });
        let state_in = |slot: usize| self.buffers.pool.add((slot * heads + self.head) * size);
        for run in self.chain {
            let state = state_in(run.slot);
            match run.from {
                None => std::ptr::write_bytes(state, 0, size),
                Some(from) if from != run.slot => std::ptr::copy_nonoverlapping(state_in(from), state, size),
                Some(_) => {}
            }
            for row in run.first_row..run.first_row + run.len {
                self.advance::<S>(row, state, scratch);
            }
        }
    }
}

impl Head<'_> {
    #[inline(always)]
    unsafe fn advance<S: Simd>(&self, row: usize, state: *mut f32, scratch: *mut f32) {
        let Recurrence { rule, key_heads, heads, key_dim, value_dim, .. } = *self.what;
        let mixed = self.buffers.mixed.add(row * self.what.mixed);
        let projected = self.buffers.projected.add(row * self.what.projected);
        let at = self.head / (heads / key_heads) * key_dim;
        let (key, query) = (mixed.add(self.what.keys + at), mixed.add(self.what.queries + at));
        let value = mixed.add(self.what.values + self.head * value_dim);
        let step =
            softplus(*projected.add(self.what.step + self.head) + *self.buffers.dt_bias.add(self.head));
        let rate = -(*self.buffers.a_log.add(self.head)).exp();
        let out = self.buffers.out.add((row * heads + self.head) * value_dim);
        match rule {
            Rule::StateSpace { low, high } => {
                let step = step.max(low).min(high);
                let (decay, skip) = ((step * rate).exp(), *self.buffers.third.add(self.head));
                for i in 0..value_dim {
                    let v = *value.add(i);
                    let read =
                        write_read::<S>(state.add(i * key_dim), key, query, (decay, step * v), key_dim);
                    *out.add(i) = read + skip * v;
                }
            }
            Rule::Delta { write, eps } => {
                let decay = (step * rate).exp();
                let beta = 1.0 / (1.0 + (-*projected.add(write + self.head)).exp());
                let (unit_key, unit_query) = (scratch.cast_const(), scratch.add(key_dim).cast_const());
                unit::<S>(key, scratch, 1.0, key_dim);
                unit::<S>(query, scratch.add(key_dim), 1.0 / (key_dim as f32).sqrt(), key_dim);
                let mut squares = 0.0;
                for i in 0..value_dim {
                    let state = state.add(i * key_dim);
                    let known = decay * dot::<S>(state, unit_key, key_dim);
                    let new = beta * (*value.add(i) - known);
                    let read = write_read::<S>(state, unit_key, unit_query, (decay, new), key_dim);
                    *out.add(i) = read;
                    squares += read * read;
                }
                let factor = 1.0 / (squares / value_dim as f32 + eps).sqrt();
                for i in 0..value_dim {
                    *out.add(i) *= factor * *self.buffers.third.add(i);
                }
            }
        }
        gate::<S>(out, projected.add(self.what.gate + self.head * value_dim), value_dim);
    }
}

/// ln(1 + e^x)
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// `state = state · decay + key · new`, and its product with the query.
#[inline(always)]
unsafe fn write_read<S: Simd>(
    state: *mut f32,
    key: *const f32,
    query: *const f32,
    (decay, new): (f32, f32),
    n: usize,
) -> f32 {
    let mut sum = S::splat(0.0);
    let whole = n / S::LANES * S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        let kept = S::mul(S::load(state.add(i)), S::splat(decay));
        let next = S::fma(S::load(key.add(i)), S::splat(new), kept);
        S::store(state.add(i), next);
        sum = S::fma(next, S::load(query.add(i)), sum);
    }
    let mut total = S::sum(sum);
    for i in whole..n {
        let next = S::fma1(*key.add(i), new, *state.add(i) * decay);
        *state.add(i) = next;
        total = S::fma1(next, *query.add(i), total);
    }
    total
}

/// The sum of products of `n` pairs.
#[inline(always)]
pub(super) unsafe fn dot<S: Simd>(a: *const f32, b: *const f32, n: usize) -> f32 {
    let mut sum = S::splat(0.0);
    let whole = n / S::LANES * S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        sum = S::fma(S::load(a.add(i)), S::load(b.add(i)), sum);
    }
    let mut total = S::sum(sum);
    for i in whole..n {
        total = S::fma1(*a.add(i), *b.add(i), total);
    }
    total
}

/// `x · scale / |x|`
#[inline(always)]
unsafe fn unit<S: Simd>(x: *const f32, out: *mut f32, scale: f32, n: usize) {
    let factor = scale / (dot::<S>(x, x, n) + LENGTH_EPS).sqrt();
    for i in 0..n {
        *out.add(i) = *x.add(i) * factor;
    }
}

/// `y *= silu(gate)`
#[inline(always)]
unsafe fn gate<S: Simd>(y: *mut f32, gate: *const f32, n: usize) {
    let whole = n / S::LANES * S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        let g = S::load(gate.add(i));
        S::store(y.add(i), S::mul(S::load(y.add(i)), S::mul(g, math::sigmoid::<S>(g))));
    }
    for i in whole..n {
        let g = *gate.add(i);
        *y.add(i) *= g / (1.0 + (-g).exp());
    }
}
