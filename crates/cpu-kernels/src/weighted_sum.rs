//! Sums of what each row's experts computed, each times its weight.

use super::element::{Float, load, load1, store, store1};
use super::rows::by_rows;
use super::simd::{self, Simd, Work};

/// Inputs: parts `[rows, chosen, width]`, weights `[rows, chosen]` f32. Output: `[rows, width]`, in the parts' type.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedSum {
    pub float: Float,
    pub rows: usize,
    pub chosen: usize,
    pub width: usize,
}

/// Rows `first..end`.
#[derive(Clone, Copy)]
struct Part<'a> {
    what: &'a WeightedSum,
    parts: *const u8,
    weights: *const f32,
    out: *mut u8,
    first: usize,
    end: usize,
}

// SAFETY: tasks write disjoint rows.
unsafe impl Sync for Part<'_> {}

impl WeightedSum {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], out: *mut u8) {
        let all =
            Part { what: self, parts: inputs[0], weights: inputs[1].cast(), out, first: 0, end: self.rows };
        let isa = simd::isa();
        by_rows(self.rows, self.width * self.chosen, |first, end| {
            let all = &all;
            simd::with(isa, Part { first, end, ..*all })
        });
    }
}

impl Work for Part<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let WeightedSum { float, chosen, width, .. } = *self.what;
        let whole = width / S::LANES * S::LANES;
        for row in self.first..self.end {
            let weights = self.weights.add(row * chosen);
            for at in (0..whole).step_by(S::LANES) {
                let mut sum = S::splat(0.0);
                for part in 0..chosen {
                    let x = load::<S>(self.parts, float, (row * chosen + part) * width + at);
                    sum = S::fma(x, S::splat(*weights.add(part)), sum);
                }
                store::<S>(self.out, float, row * width + at, sum);
            }
            for at in whole..width {
                let mut sum = 0.0;
                for part in 0..chosen {
                    let x = load1(self.parts, float, (row * chosen + part) * width + at);
                    sum = S::fma1(x, *weights.add(part), sum);
                }
                store1(self.out, float, row * width + at, sum);
            }
        }
    }
}
