//! Codes of 4 bits that stand for the numbers of a table.

use super::{GROUP, Group, float, nibbles};

/// What codes stand for.
const NUMBERS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// As codes of 8 bits, which have every number of the table.
fn group(scale: f32, bytes: &[u8]) -> Group {
    let codes = nibbles(bytes).map(|code| NUMBERS[usize::from(code)] as u8 ^ 0x80);
    Group { scale, bias: -128.0 * scale, codes }
}

/// A scale of 32.
pub fn iq4_nl(block: &[u8]) -> Group {
    group(float(block), &block[2..])
}

/// Scales of 32 with six bits each: two are in `high`, four in `low`.
pub fn iq4_xs(block: &[u8], take: &mut dyn FnMut(Group)) {
    let (d, high, low) = (float(block), u16::from_le_bytes([block[2], block[3]]), &block[4..8]);
    for (at, bytes) in block[8..].chunks_exact(GROUP / 2).enumerate() {
        let scale = (low[at / 2] >> (at % 2 * 4) & 15) | ((high >> (2 * at) & 3) as u8) << 4;
        take(group(d * (f32::from(scale) - 32.0), bytes));
    }
}
