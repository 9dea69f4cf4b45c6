//! Mixes of packed rows with the row before each. What came before a run's first row is in the slot that it starts from.
//!
//! Source: arXiv 2404.05892 §4.
//! Invariant: a row's bits depend on its own and the row before it, wherever that was computed.

use super::pool;
use super::runs::{Run, clear, runs};
use super::simd::{self, Simd, Work};

/// Channels of a task.
const CHANNELS: usize = 256;

/// Inputs, all f32 but the runs: rows `[rows, width]`, shares `[mixes, width]`, runs `[runs, 4]`, the pool
/// `[slots, 1, width]`.
/// Outputs: for each mix `x + (before - x) * share`, `[rows, width]`, and the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    pub rows: usize,
    pub width: usize,
    pub mixes: usize,
    pub runs: usize,
    pub slots: usize,
}

/// Some channels of all runs.
#[derive(Clone, Copy)]
struct Channels<'a> {
    what: &'a Shift,
    x: *const f32,
    shares: *const f32,
    outputs: &'a [*mut u8],
    runs: &'a [Run],
    from: usize,
    to: usize,
}

// SAFETY: tasks write disjoint channels.
unsafe impl Sync for Channels<'_> {}

impl Shift {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8]) {
        let (runs, covered) = runs(inputs[2].cast(), self.runs, self.rows, self.slots);
        for mix in &outputs[..self.mixes] {
            clear(mix.cast(), self.width, &covered);
        }
        let all = Channels {
            what: self,
            x: inputs[0].cast(),
            shares: inputs[1].cast(),
            outputs,
            runs: &runs,
            from: 0,
            to: self.width,
        };
        let isa = simd::isa();
        // A few rows are not worth a second thread.
        let each = if self.rows * self.width * self.mixes <= 1 << 14 { self.width } else { CHANNELS };
        pool::run(self.width.div_ceil(each.max(1)), |i| {
            let all = &all;
            let (from, to) = (i * each, self.width.min((i + 1) * each));
            simd::with(isa, Channels { from, to, ..*all })
        });
    }
}

impl Work for Channels<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Shift { width, mixes, .. } = *self.what;
        let pool = self.outputs[mixes].cast::<f32>();
        for run in self.runs {
            for row in run.first_row..run.first_row + run.len {
                let x = self.x.add(row * width);
                let before = match (row - run.first_row, run.from) {
                    (0, Some(from)) => Some(pool.add(from * width).cast_const()),
                    (0, None) => None,
                    _ => Some(x.sub(width)),
                };
                for mix in 0..mixes {
                    let out = self.outputs[mix].cast::<f32>().add(row * width);
                    self.mix::<S>(x, before, self.shares.add(mix * width), out);
                }
            }
            let last = self.x.add((run.first_row + run.len).saturating_sub(1) * width + self.from);
            if run.len > 0 {
                std::ptr::copy_nonoverlapping(
                    last,
                    pool.add(run.slot * width + self.from),
                    self.to - self.from,
                );
            }
        }
    }
}

impl Channels<'_> {
    #[inline(always)]
    unsafe fn mix<S: Simd>(
        &self,
        x: *const f32,
        before: Option<*const f32>,
        share: *const f32,
        out: *mut f32,
    ) {
        let mut at = self.from;
        while at + S::LANES <= self.to {
            let own = S::load(x.add(at));
            let before = match before {
                Some(before) => S::load(before.add(at)),
                None => S::splat(0.0),
            };
            S::store(out.add(at), S::fma(S::sub(before, own), S::load(share.add(at)), own));
            at += S::LANES;
        }
        for at in at..self.to {
            let own = *x.add(at);
            let before = before.map_or(0.0, |before| *before.add(at));
            *out.add(at) = S::fma1(before - own, *share.add(at), own);
        }
    }
}
