//! Rows of a quantized table, decoded.

use super::element::{Float, load1, store1};
use super::simd::{self, Simd, Work};

/// Inputs: ids `[rows]`, words, scales and biases of the table. Output `[rows, k]`. A wrong id gives zeros.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    pub rows: usize,
    /// Rows of the table.
    pub n: usize,
    pub k: usize,
    pub bits: usize,
    pub group: usize,
    pub scales: Float,
    pub float: Float,
}

struct EmbedRow<'a> {
    what: &'a Embed,
    inputs: &'a [*const u8],
    out: *mut u8,
    row: usize,
}

impl Embed {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], out: *mut u8) {
        for row in 0..self.rows {
            simd::with(simd::isa(), EmbedRow { what: self, inputs, out, row });
        }
    }
}

impl Work for EmbedRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Embed { n, k, bits, group, scales, float, .. } = *self.what;
        let id = *self.inputs[0].cast::<i32>().add(self.row) as usize;
        let to = self.row * k;
        if id >= n {
            return std::ptr::write_bytes(self.out.add(to * float.bytes()), 0, k * float.bytes());
        }
        let words = self.inputs[1].add(id * k * bits / 8);
        for g in 0..k / group {
            let at = id * (k / group) + g;
            let (scale, bias) = (load1(self.inputs[2], scales, at), load1(self.inputs[3], scales, at));
            for i in g * group..(g + 1) * group {
                let bit = i * bits;
                let low = *words.add(bit / 8) as u32;
                let high = if bit % 8 + bits > 8 { *words.add(bit / 8 + 1) as u32 } else { 0 };
                let q = ((low | high << 8) >> (bit % 8)) & ((1 << bits) - 1);
                store1(self.out, float, to + i, S::fma1(q as f32, scale, bias));
            }
        }
    }
}
