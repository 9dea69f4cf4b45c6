//! Blocks of 256 elements, which have scales of their scales.

use super::{GROUP, Group, float};

/// Elements of a block.
pub const BLOCK: usize = 256;

/// Four bits, scales and minima of 32.
pub fn q4_k(block: &[u8], take: &mut dyn FnMut(Group)) {
    let (d, minimum, scales, codes) = (float(block), float(&block[2..]), &block[4..16], &block[16..]);
    for at in 0..8 {
        let (scale, low) = scale_and_minimum(scales, at);
        let bytes = &codes[at / 2 * GROUP..];
        let codes = std::array::from_fn(|i| bytes[i] >> (at % 2 * 4) & 15);
        take(Group { scale: d * scale, bias: -(minimum * low), codes });
    }
}

/// Five bits: the fifth ones are in front of the others.
pub fn q5_k(block: &[u8], take: &mut dyn FnMut(Group)) {
    let (d, minimum, scales) = (float(block), float(&block[2..]), &block[4..16]);
    let (high, codes) = (&block[16..48], &block[48..]);
    for at in 0..8 {
        let (scale, low) = scale_and_minimum(scales, at);
        let bytes = &codes[at / 2 * GROUP..];
        let codes = std::array::from_fn(|i| (bytes[i] >> (at % 2 * 4) & 15) | (high[i] >> at & 1) << 4);
        take(Group { scale: d * scale, bias: -(minimum * low), codes });
    }
}

/// Six bits each, eight scales and eight minima in 12 bytes.
fn scale_and_minimum(packed: &[u8], at: usize) -> (f32, f32) {
    let (scale, minimum) = match at {
        0..4 => (packed[at] & 63, packed[at + 4] & 63),
        _ => (packed[at + 4] & 15 | (packed[at - 4] >> 6) << 4, packed[at + 4] >> 4 | (packed[at] >> 6) << 4),
    };
    (f32::from(scale), f32::from(minimum))
}

/// Two bits, scales and minima of 16.
pub fn q2_k(block: &[u8]) -> [f32; BLOCK] {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (d, minimum) = (float(&block[80..]), float(&block[82..]));
    std::array::from_fn(|at| {
        let (half, quarter, lane) = (at / 128, at % 128 / 32, at % 32);
        let code = codes[half * 32 + lane] >> (2 * quarter) & 3;
        let scale = scales[at / 16];
        d * f32::from(scale & 15) * f32::from(code) - minimum * f32::from(scale >> 4)
    })
}

/// Three bits, scales of 16.
pub fn q3_k(block: &[u8]) -> [f32; BLOCK] {
    let (high, codes, scales, d) = (&block[..32], &block[32..96], &block[96..108], float(&block[108..]));
    std::array::from_fn(|at| {
        let (half, quarter, lane) = (at / 128, at % 128 / 32, at % 32);
        let code = (codes[half * 32 + lane] >> (2 * quarter) & 3) as i8;
        let is_high = high[lane] >> (half * 4 + quarter) & 1 == 1;
        let code = if is_high { code } else { code - 4 };
        d * f32::from(six_bits(scales, at / 16)) * f32::from(code)
    })
}

/// One of 16 scales around zero, six bits each in 12 bytes.
fn six_bits(packed: &[u8], at: usize) -> i8 {
    let low = packed[at % 8] >> (at / 8 * 4) & 15;
    let high = packed[8 + at % 4] >> (at / 4 * 2) & 3;
    (low | high << 4) as i8 - 32
}

/// Six bits, scales of 16.
pub fn q6_k(block: &[u8]) -> [f32; BLOCK] {
    let (low, high, scales, d) = (&block[..128], &block[128..192], &block[192..208], float(&block[208..]));
    std::array::from_fn(|at| {
        let (half, quarter, lane) = (at / 128, at % 128 / 32, at % 32);
        let nibble = low[half * 64 + quarter % 2 * 32 + lane] >> (quarter / 2 * 4) & 15;
        let top = high[half * 32 + lane] >> (2 * quarter) & 3;
        let code = (nibble | top << 4) as i8 - 32;
        d * f32::from(scales[at / 16] as i8) * f32::from(code)
    })
}
