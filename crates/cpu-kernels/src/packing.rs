//! Rows of keys and values stored in a few bits each: affine codes, then a scale and a bias for each group.

/// How a row is stored: `[codes | scales | biases]`, 32-bit words. Codes fill words from their low bits up; scales
/// and biases are f32, one for each group. An element is `code · scale + bias`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Bits of a code: 4 or 8.
    pub bits: usize,
    /// Elements that share a scale; a multiple of eight.
    pub group: usize,
}

/// The smallest scale; keeps a group of equal elements from dividing by zero.
const SCALE_MIN: f32 = 1e-7;

impl Packing {
    /// Words of a row of `width` elements, which groups divide.
    pub const fn words(self, width: usize) -> usize {
        width * self.bits / 32 + 2 * (width / self.group)
    }

    /// Packs a row, as MLX's affine quantization chooses scales: the end of the range that is further from zero is
    /// kept exactly.
    ///
    /// # Safety
    /// `row` has `width` elements, `out` [`Self::words`].
    #[inline(always)]
    pub(super) unsafe fn pack(self, row: *const f32, width: usize, out: *mut u32) {
        let most = ((1u32 << self.bits) - 1) as f32;
        let groups = width / self.group;
        let scales = out.add(width * self.bits / 32).cast::<f32>();
        let words = self.group * self.bits / 32;
        let per_word = 32 / self.bits;
        for group in 0..groups {
            let values = row.add(group * self.group);
            let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
            for i in 0..self.group {
                low = low.min(*values.add(i));
                high = high.max(*values.add(i));
            }
            let from_low = low.abs() > high.abs();
            let step = ((high - low) / most).max(SCALE_MIN);
            let step = if from_low { step } else { -step };
            let edge = if from_low { low } else { high };
            let at_edge = (edge / step).round_ties_even();
            let (scale, bias) = if at_edge == 0.0 { (step, 0.0) } else { (edge / at_edge, edge) };
            for word in 0..words {
                let mut bits = 0u32;
                for i in 0..per_word {
                    let value = *values.add(word * per_word + i);
                    let code = ((value - bias) / scale).round_ties_even().max(0.0).min(most);
                    bits |= (code as u32) << (i * self.bits);
                }
                *out.add(group * words + word) = bits;
            }
            *scales.add(group) = scale;
            *scales.add(groups + group) = bias;
        }
    }

    /// # Safety
    /// `row` has [`Self::words`] of `width` elements, `out` that many elements.
    #[inline(always)]
    pub(super) unsafe fn unpack(self, row: *const u32, width: usize, out: *mut f32) {
        if self.bits == 8 {
            self.unpack_bits::<8>(row, width, out)
        } else {
            self.unpack_bits::<4>(row, width, out)
        }
    }

    #[inline(always)]
    unsafe fn unpack_bits<const BITS: usize>(self, row: *const u32, width: usize, out: *mut f32) {
        let groups = width / self.group;
        let scales = row.add(width * BITS / 32).cast::<f32>();
        let words = self.group * BITS / 32;
        for group in 0..groups {
            let (scale, bias) = (*scales.add(group), *scales.add(groups + group));
            let out = out.add(group * self.group);
            for word in 0..words {
                let bits = *row.add(group * words + word);
                for i in 0..32 / BITS {
                    let code = (bits >> (i * BITS)) & ((1 << BITS) - 1);
                    *out.add(word * (32 / BITS) + i) = code as f32 * scale + bias;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_within_half_a_step() {
        for (bits, group) in [(4, 32), (8, 64), (4, 64)] {
            let packing = Packing { bits, group };
            let row: Vec<f32> = (0..128).map(|i| ((i * 37 % 101) as f32 - 30.0) * 0.1).collect();
            let (mut packed, mut back) = (vec![0u32; packing.words(128)], vec![0f32; 128]);
            // SAFETY: the buffers have the required sizes.
            unsafe {
                packing.pack(row.as_ptr(), 128, packed.as_mut_ptr());
                packing.unpack(packed.as_ptr(), 128, back.as_mut_ptr());
            }
            let step = 10.1 / ((1 << bits) - 1) as f32;
            for (value, back) in row.iter().zip(&back) {
                assert!((value - back).abs() <= 0.75 * step, "{value} became {back} in {bits} bits");
            }
        }
    }

    #[test]
    fn equal_elements_and_zeros_survive() {
        let packing = Packing { bits: 4, group: 32 };
        for value in [0.0, 3.5, -2.0] {
            let (row, mut packed, mut back) = ([value; 32], [0u32; 6], [1f32; 32]);
            // SAFETY: the buffers have the required sizes.
            unsafe {
                packing.pack(row.as_ptr(), 32, packed.as_mut_ptr());
                packing.unpack(packed.as_ptr(), 32, back.as_mut_ptr());
            }
            assert_eq!(back, row);
        }
    }
}
