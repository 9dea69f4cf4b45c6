//! Codes of floats of 4 bits in groups of 16, each with a scale of 8 bits.

/// Elements of a block.
pub const BLOCK: usize = 64;
/// Elements that share a scale.
pub const NVFP4_GROUP: usize = 16;

/// What codes without their sign stand for.
const NUMBERS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The scales and the codes of a block.
pub fn parts(block: &[u8]) -> ([u8; BLOCK / NVFP4_GROUP], [u8; BLOCK]) {
    // ggml knows no sign of a scale, and zero where others have no number.
    let scale = |at: usize| if block[at] & 0x7F == 0x7F { 0 } else { block[at] & 0x7F };
    // In the low halves of a group's bytes are its first codes.
    let code = |at: usize| {
        let (group, lane) = (at / NVFP4_GROUP, at % NVFP4_GROUP);
        block[4 + group * 8 + lane % 8] >> (lane / 8 * 4) & 15
    };
    (std::array::from_fn(scale), std::array::from_fn(code))
}

/// The numbers of a block.
pub fn numbers(block: &[u8]) -> [f32; BLOCK] {
    let (scales, codes) = parts(block);
    std::array::from_fn(|at| {
        let number = NUMBERS[usize::from(codes[at] & 7)] * e4m3(scales[at / NVFP4_GROUP]);
        if codes[at] < 8 { number } else { -number }
    })
}

/// Four bits of exponent and three of fraction.
fn e4m3(scale: u8) -> f32 {
    let (exponent, fraction) = (i32::from(scale >> 3), f32::from(scale & 7) / 8.0);
    match exponent {
        0 => fraction * 2.0_f32.powi(-6),
        exponent => (1.0 + fraction) * 2.0_f32.powi(exponent - 7),
    }
}
