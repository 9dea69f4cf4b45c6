//! Masks of logits: which tokens a row may sample, one bit each.

use super::pool;

/// Fewer logits than this are faster on one thread.
const SMALL: usize = 1 << 15;

/// Inputs: logits `[rows, vocab]` f32; each row's mask, `[rows]` i32, −1 for none; masks `[masks, words]`, 32 bits a word,
/// the lowest first. Output: logits, −∞ where the bit of a row's mask is 0. A mask that is not there forbids nothing; bits
/// behind the last word are 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask {
    pub rows: usize,
    pub vocab: usize,
    pub masks: usize,
    pub words: usize,
}

#[derive(Clone, Copy)]
struct Buffers {
    logits: *const f32,
    places: *const i32,
    masks: *const u32,
    out: *mut f32,
}

// SAFETY: tasks write disjoint rows.
unsafe impl Sync for Buffers {}

impl Mask {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], out: *mut u8) {
        let all = Buffers {
            logits: inputs[0].cast(),
            places: inputs[1].cast(),
            masks: inputs[2].cast(),
            out: out.cast(),
        };
        if self.rows * self.vocab <= SMALL {
            return (0..self.rows).for_each(|row| self.row(&all, row));
        }
        let all = &all;
        pool::run(self.rows, |row| self.row(all, row));
    }

    unsafe fn row(&self, all: &Buffers, row: usize) {
        let (from, to) = (all.logits.add(row * self.vocab), all.out.add(row * self.vocab));
        let place = usize::try_from(*all.places.add(row)).ok().filter(|place| *place < self.masks);
        let Some(place) = place else { return std::ptr::copy_nonoverlapping(from, to, self.vocab) };
        let words = all.masks.add(place * self.words);
        for first in (0..self.vocab).step_by(32) {
            let bits = if first / 32 < self.words { *words.add(first / 32) } else { 0 };
            let count = (self.vocab - first).min(32);
            let (from, to) = (from.add(first), to.add(first));
            match bits {
                u32::MAX => std::ptr::copy_nonoverlapping(from, to, count),
                0 => (0..count).for_each(|at| *to.add(at) = f32::NEG_INFINITY),
                _ => (0..count).for_each(|at| {
                    *to.add(at) = if bits >> at & 1 == 1 { *from.add(at) } else { f32::NEG_INFINITY };
                }),
            }
        }
    }
}
