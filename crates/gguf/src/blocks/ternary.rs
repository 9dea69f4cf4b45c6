//! Weights of −1, 0 and 1 with a scale of 256.

use super::k_quants::BLOCK;
use super::{GROUP, Group, float};

fn groups(d: f32, codes: &[u8; BLOCK], take: &mut dyn FnMut(Group)) {
    for codes in codes.as_chunks::<GROUP>().0 {
        take(Group { scale: d, bias: -d, codes: *codes });
    }
}

/// Digits of base three, five in a byte: bytes of 32, of 16, and of 4 with four digits, each digit of all of them in a row.
pub fn tq1_0(block: &[u8], take: &mut dyn FnMut(Group)) {
    let (mut codes, mut at) = ([0; BLOCK], 0);
    for (bytes, digits) in [(&block[..32], 5), (&block[32..48], 5), (&block[48..52], 4)] {
        for digit in 0..digits {
            for byte in bytes {
                // A byte is a fraction of 256, whose digits come by multiplication.
                let rest = byte.wrapping_mul(3_u8.pow(digit));
                codes[at] = ((u16::from(rest) * 3) >> 8) as u8;
                at += 1;
            }
        }
    }
    groups(float(&block[52..]), &codes, take);
}

/// Two bits each.
pub fn tq2_0(block: &[u8], take: &mut dyn FnMut(Group)) {
    let codes = std::array::from_fn(|at| block[at / 128 * 32 + at % 32] >> (at % 128 / 32 * 2) & 3);
    groups(float(&block[64..]), &codes, take);
}
