//! A causal convolution of each channel over packed rows, and its activation. What came before a run's first row
//! is in the slot that it starts from.
//!
//! Invariant: a row's bits depend on its own and the `kernel_size - 1` rows before it, wherever those were computed.

use super::math;
use super::pool;
use super::runs::{Run, clear, runs};
use super::simd::{self, Simd, Work};

/// Channels of a task.
const CHANNELS: usize = 256;

/// Inputs, all f32 but the runs: rows `[rows, stride]` whose channels begin at `offset`, weights `[kernel_size, channels]`,
/// runs `[runs, 4]`, the pool `[slots, kernel_size - 1, channels]`, and the bias `[channels]` if `bias`.
/// Outputs: `silu` of the convolution, `[rows, channels]`, and the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    pub rows: usize,
    pub stride: usize,
    pub offset: usize,
    pub channels: usize,
    pub kernel_size: usize,
    pub bias: bool,
    pub runs: usize,
    pub slots: usize,
}

/// Some channels of all runs.
#[derive(Clone, Copy)]
struct Channels<'a> {
    what: &'a Conv,
    x: *const f32,
    weight: *const f32,
    bias: *const f32,
    pool: *mut f32,
    out: *mut f32,
    runs: &'a [Run],
    from: usize,
    to: usize,
}

// SAFETY: tasks write disjoint channels.
unsafe impl Sync for Channels<'_> {}

impl Conv {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8]) {
        let (runs, covered) = runs(inputs[2].cast(), self.runs, self.rows, self.slots);
        clear(outputs[0].cast(), self.channels, &covered);
        let all = Channels {
            what: self,
            x: inputs[0].cast::<f32>().add(self.offset),
            weight: inputs[1].cast(),
            bias: if self.bias { inputs[4].cast() } else { std::ptr::null() },
            pool: outputs[1].cast(),
            out: outputs[0].cast(),
            runs: &runs,
            from: 0,
            to: self.channels,
        };
        let isa = simd::isa();
        // A few rows are not worth a second thread.
        let each = if self.rows * self.channels <= 1 << 12 { self.channels } else { CHANNELS };
        pool::run(self.channels.div_ceil(each.max(1)), |i| {
            let all = &all;
            let (from, to) = (i * each, self.channels.min((i + 1) * each));
            simd::with(isa, Channels { from, to, ..*all })
        });
    }
}

impl Work for Channels<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for run in self.runs {
            let mut at = self.from;
            while at + S::LANES <= self.to {
                self.vector::<S>(run, at);
                at += S::LANES;
            }
            for at in at..self.to {
                self.single(run, at);
            }
            self.save_state(run);
        }
    }
}

impl Channels<'_> {
    /// What `tap` sees at the run's row `row`, from channel `at` on: `None` before the sequence's beginning.
    #[inline(always)]
    unsafe fn seen(&self, run: &Run, row: usize, tap: usize, at: usize) -> Option<*const f32> {
        let Conv { stride, channels, kernel_size, .. } = *self.what;
        match (row + tap).checked_sub(kernel_size - 1) {
            Some(row) => Some(self.x.add((run.first_row + row) * stride + at)),
            None => {
                let from = run.from?;
                Some(self.pool.cast_const().add((from * (kernel_size - 1) + row + tap) * channels + at))
            }
        }
    }

    #[inline(always)]
    unsafe fn vector<S: Simd>(&self, run: &Run, at: usize) {
        let Conv { channels, kernel_size, bias, .. } = *self.what;
        let start = if bias { S::load(self.bias.add(at)) } else { S::splat(0.0) };
        for row in 0..run.len {
            let mut sum = start;
            for tap in 0..kernel_size {
                if let Some(seen) = self.seen(run, row, tap, at) {
                    sum = S::fma(S::load(self.weight.add(tap * channels + at)), S::load(seen), sum);
                }
            }
            let y = S::mul(sum, math::sigmoid::<S>(sum));
            S::store(self.out.add((run.first_row + row) * channels + at), y);
        }
    }

    unsafe fn single(&self, run: &Run, at: usize) {
        let Conv { channels, kernel_size, bias, .. } = *self.what;
        for row in 0..run.len {
            let mut sum = if bias { *self.bias.add(at) } else { 0.0 };
            for tap in 0..kernel_size {
                if let Some(seen) = self.seen(run, row, tap, at) {
                    sum += *self.weight.add(tap * channels + at) * *seen;
                }
            }
            *self.out.add((run.first_row + row) * channels + at) = sum / (1.0 + (-sum).exp());
        }
    }

    /// Keeps the last `kernel_size - 1` rows. Each comes from a later place than it goes to, or from another slot, so the
    /// order is safe.
    unsafe fn save_state(&self, run: &Run) {
        let Conv { channels, kernel_size, .. } = *self.what;
        let width = self.to - self.from;
        for kept in 0..kernel_size - 1 {
            let to = self.pool.add((run.slot * (kernel_size - 1) + kept) * channels + self.from);
            match self.seen(run, run.len, kept, self.from) {
                Some(from) => std::ptr::copy_nonoverlapping(from, to, width),
                None => std::ptr::write_bytes(to, 0, width),
            }
        }
    }
}
