//! Codes that stand for rows of a grid: several weights each, whose signs may be apart.
//!
//! Source: the package `gguf` 0.x, `quants.py`.

use half::f16;

use super::grids::{IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
use super::k_quants::BLOCK;
use super::{GROUP, Group, float};

/// What codes of 2 bits stand for in grids of eight, and of 3 bits in grids of four.
const OF_TWO_BITS: [f32; 3] = [8.0, 25.0, 43.0];
const OF_THREE_BITS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
/// What is added to each weight of a group, or subtracted.
const DELTA: f32 = 0.125;

fn of_two_bits(row: u16, at: usize) -> usize {
    usize::from(row >> (2 * at) & 3)
}

fn of_three_bits(row: u16, at: usize) -> usize {
    usize::from(row >> (3 * at) & 7)
}

/// Eight signs from seven bits: the number of minus signs is even.
fn even_signs(bits: u32) -> u8 {
    let bits = (bits & 127) as u8;
    bits | (bits.count_ones() as u8 & 1) << 7
}

fn signed(number: f32, signs: u8, at: usize) -> f32 {
    if signs >> at & 1 == 1 { -number } else { number }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.as_chunks().0.get(at).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.as_chunks().0.get(at).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// A scale of 16 weights, four bits.
fn nibble(bytes: &[u8], at: usize) -> f32 {
    f32::from(bytes[at / 2] >> (at % 2 * 4) & 15)
}

/// Scales of 32. Two words of each: four rows, then the scale and four times seven signs.
pub fn iq2_xxs(block: &[u8]) -> [f32; BLOCK] {
    let (d, words) = (float(block), &block[2..]);
    std::array::from_fn(|at| {
        let (group, part, i) = (at / 32, at % 32 / 8, at % 8);
        let (rows, rest) = (word(words, 2 * group), word(words, 2 * group + 1));
        let row = IQ2_XXS[(rows >> (8 * part) & 255) as usize];
        let scale = d * (0.5 + (rest >> 28) as f32) * 0.25;
        scale * signed(OF_TWO_BITS[of_two_bits(row, i)], even_signs(rest >> (7 * part)), i)
    })
}

/// Scales of 16. Nine bits of a code are a row, seven the signs.
pub fn iq2_xs(block: &[u8]) -> [f32; BLOCK] {
    let (d, codes, scales) = (float(block), &block[2..66], &block[66..]);
    std::array::from_fn(|at| {
        let code = short(codes, at / 8);
        let row = IQ2_XS[usize::from(code & 511)];
        let scale = d * (0.5 + nibble(scales, at / 16)) * 0.25;
        scale * signed(OF_TWO_BITS[of_two_bits(row, at % 8)], even_signs(u32::from(code >> 9)), at % 8)
    })
}

/// Scales of 16. Two more bits of a row are apart, and the signs.
pub fn iq2_s(block: &[u8]) -> [f32; BLOCK] {
    let (d, low, signs) = (float(block), &block[2..34], &block[34..66]);
    let (high, scales) = (&block[66..74], &block[74..]);
    std::array::from_fn(|at| {
        let part = at / 8;
        let row = usize::from(low[part]) | usize::from(high[part / 4] >> (part % 4 * 2) & 3) << 8;
        let scale = d * (0.5 + nibble(scales, at / 16)) * 0.25;
        scale * signed(OF_TWO_BITS[of_two_bits(IQ2_S[row], at % 8)], signs[part], at % 8)
    })
}

/// Scales of 32, in words with four times seven signs.
pub fn iq3_xxs(block: &[u8]) -> [f32; BLOCK] {
    let (d, rows, rest) = (float(block), &block[2..66], &block[66..]);
    std::array::from_fn(|at| {
        let (row, rest) = (IQ3_XXS[usize::from(rows[at / 4])], word(rest, at / 32));
        let scale = d * (0.5 + (rest >> 28) as f32) * 0.5;
        let signs = even_signs(rest >> (7 * (at % 32 / 8)));
        scale * signed(OF_THREE_BITS[of_three_bits(row, at % 4)], signs, at % 8)
    })
}

/// Scales of 32. Weights are odd numbers up to 15, so that codes of 4 bits have them.
pub fn iq3_s(block: &[u8], take: &mut dyn FnMut(Group)) {
    let (d, low, high) = (float(block), &block[2..66], &block[66..74]);
    let (signs, scales) = (&block[74..106], &block[106..]);
    for group in 0..BLOCK / GROUP {
        let scale = d * (1.0 + 2.0 * nibble(scales, group));
        let codes = std::array::from_fn(|i| {
            let at = group * GROUP + i;
            let part = at / 4;
            let row = usize::from(low[part]) | usize::from(high[part / 8] >> (part % 8) & 1) << 8;
            let step = of_three_bits(IQ3_S[row], at % 4) as u8;
            if signs[at / 8] >> (at % 8) & 1 == 1 { 7 - step } else { 8 + step }
        });
        take(Group { scale: 2.0 * scale, bias: -15.0 * scale, codes });
    }
}

/// Scales of 32, and whether the delta is added or subtracted, beside three more bits of four rows.
pub fn iq1_s(block: &[u8], take: &mut dyn FnMut(Group)) {
    let (d, low, high) = (float(block), &block[2..34], &block[34..]);
    for group in 0..BLOCK / GROUP {
        let high = short(high, group);
        let scale = d * f32::from(2 * (high >> 12 & 7) + 1);
        let delta = if high & 0x8000 == 0 { DELTA } else { -DELTA };
        let codes = std::array::from_fn(|i| {
            let row = usize::from(low[group * 4 + i / 8]) | usize::from(high >> (i / 8 * 3) & 7) << 8;
            of_two_bits(IQ1_S[row], i % 8) as u8
        });
        take(Group { scale, bias: scale * (delta - 1.0), codes });
    }
}

/// Scales of 16 and deltas of 8. The highest digits of four numbers with scales are a float16.
pub fn iq1_m(block: &[u8]) -> [f32; BLOCK] {
    let (low, high, scales) = (&block[..32], &block[32..48], &block[48..]);
    let bits = (0..4).map(|at| (short(scales, at) >> 12) << (4 * at)).fold(0, |bits, digit| bits | digit);
    let d = f16::from_bits(bits).to_f32();
    std::array::from_fn(|at| {
        let (part, sixteen) = (at / 8, at / 16);
        let high = high[part / 2] >> (part % 2 * 4);
        let row = usize::from(low[part]) | usize::from(high & 7) << 8;
        let delta = if high & 8 == 0 { DELTA } else { -DELTA };
        let scale = d * f32::from(2 * (short(scales, sixteen / 4) >> (sixteen % 4 * 3) & 7) + 1);
        scale * (of_two_bits(IQ1_S[row], at % 8) as f32 - 1.0 + delta)
    })
}
