//! Biases and penalties of logits: a few entries of each row.

use super::pool;

/// Fewer logits than this are faster on one thread.
const SMALL: usize = 1 << 15;

/// Inputs: logits `[rows, vocab]` f32; where each row's entries start, `[rows + 1]` i32; then of each entry the token
/// (i32), its bias, the divisor of positive and factor of negative logits, and what is subtracted (f32), `[entries]` each.
/// Output: logits. Entries outside the vocabulary have no effect; of one row's entries no two have the same token.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjust {
    pub rows: usize,
    pub vocab: usize,
    pub entries: usize,
}

#[derive(Clone, Copy)]
struct Buffers {
    logits: *const f32,
    starts: *const i32,
    tokens: *const i32,
    bias: *const f32,
    divisor: *const f32,
    subtract: *const f32,
    out: *mut f32,
}

// SAFETY: tasks write disjoint rows.
unsafe impl Sync for Buffers {}

impl Adjust {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], out: *mut u8) {
        let all = Buffers {
            logits: inputs[0].cast(),
            starts: inputs[1].cast(),
            tokens: inputs[2].cast(),
            bias: inputs[3].cast(),
            divisor: inputs[4].cast(),
            subtract: inputs[5].cast(),
            out: out.cast(),
        };
        if self.rows * self.vocab <= SMALL {
            return (0..self.rows).for_each(|row| self.row(&all, row));
        }
        let all = &all;
        pool::run(self.rows, |row| self.row(all, row));
    }

    unsafe fn row(&self, all: &Buffers, row: usize) {
        let out = all.out.add(row * self.vocab);
        std::ptr::copy_nonoverlapping(all.logits.add(row * self.vocab), out, self.vocab);
        let bound = |at: usize| (*all.starts.add(at)).clamp(0, self.entries as i32) as usize;
        for at in bound(row)..bound(row + 1) {
            let token = *all.tokens.add(at) as usize;
            if token >= self.vocab {
                continue;
            }
            let (biased, divisor) = (*out.add(token) + *all.bias.add(at), *all.divisor.add(at));
            let penalized = if biased > 0.0 { biased / divisor } else { biased * divisor };
            *out.add(token) = penalized - *all.subtract.add(at);
        }
    }
}
