//! Blocks of packed tensors as groups of 32 codes with a scale and a bias: `weight = scale × code + bias`.
//!
//! Source: ggml `ggml-quants.c` (`dequantize_row_…`). Types whose blocks have scales of fewer elements, or numbers in uneven steps, are
//! packed anew.

mod grid_quants;
mod grids;
mod k_quants;
mod nonlinear;
pub mod nvfp4;
mod requantize;
mod ternary;

use half::f16;

use crate::tensor_type::TensorType;

/// Elements that share a scale.
pub const GROUP: usize = 32;

/// A group of MLX's affine packing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Of one step.
    pub scale: f32,
    /// Of code 0.
    pub bias: f32,
    /// Of each element.
    pub codes: [u8; GROUP],
}

/// How groups of a type come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Codes of the file.
    Kept,
    /// New codes, because the file's scales are of fewer elements, or its numbers in uneven steps.
    PackedAnew,
}

/// Bits of a code and where codes come from. `None` of types that are not affine.
pub fn packing(kind: TensorType) -> Option<(usize, Origin)> {
    use TensorType::*;
    match kind {
        F32 | F16 | Bf16 | Mxfp4 | Nvfp4 => None,
        Q4_0 | Q4_1 | Q4_K => Some((4, Origin::Kept)),
        Q5_0 | Q5_1 | Q5_K => Some((5, Origin::Kept)),
        Q8_0 => Some((8, Origin::Kept)),
        Q2_K | Q3_K => Some((6, Origin::PackedAnew)),
        Q6_K => Some((8, Origin::PackedAnew)),
        IQ1_S | TQ1_0 | TQ2_0 => Some((2, Origin::Kept)),
        IQ3_S => Some((4, Origin::Kept)),
        IQ4_NL | IQ4_XS => Some((8, Origin::Kept)),
        IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS => Some((6, Origin::PackedAnew)),
    }
}

/// Calls `take` with each group of whole blocks.
pub fn for_each_group(kind: TensorType, bytes: &[u8], take: &mut dyn FnMut(Group)) {
    use TensorType::*;
    for block in bytes.chunks_exact(kind.block_bytes()) {
        match kind {
            F32 | F16 | Bf16 | Mxfp4 | Nvfp4 => {}
            Q4_0 => take(group_of_8(block, &nibbles(&block[2..]), 8.0)),
            Q4_1 => take(group_with_minimum(block, nibbles(&block[4..]))),
            Q5_0 => take(group_of_8(block, &fifth_bits(&block[2..6], nibbles(&block[6..])), 16.0)),
            Q5_1 => take(group_with_minimum(block, fifth_bits(&block[4..8], nibbles(&block[8..])))),
            Q8_0 => take(group_of_8(block, &offset_bytes(&block[2..]), 128.0)),
            Q4_K => k_quants::q4_k(block, take),
            Q5_K => k_quants::q5_k(block, take),
            Q2_K => requantize::each(&k_quants::q2_k(block), 6, take),
            Q3_K => requantize::each(&k_quants::q3_k(block), 6, take),
            Q6_K => requantize::each(&k_quants::q6_k(block), 8, take),
            IQ1_S => grid_quants::iq1_s(block, take),
            IQ1_M => requantize::each(&grid_quants::iq1_m(block), 6, take),
            IQ2_XXS => requantize::each(&grid_quants::iq2_xxs(block), 6, take),
            IQ2_XS => requantize::each(&grid_quants::iq2_xs(block), 6, take),
            IQ2_S => requantize::each(&grid_quants::iq2_s(block), 6, take),
            IQ3_XXS => requantize::each(&grid_quants::iq3_xxs(block), 6, take),
            IQ3_S => grid_quants::iq3_s(block, take),
            IQ4_NL => take(nonlinear::iq4_nl(block)),
            IQ4_XS => nonlinear::iq4_xs(block, take),
            TQ1_0 => ternary::tq1_0(block, take),
            TQ2_0 => ternary::tq2_0(block, take),
        }
    }
}

/// Calls `take` with each group of new codes of 8 bits for blocks of NVFP4, whose numbers are multiplied by `scale`.
pub fn for_each_group_of_nvfp4(bytes: &[u8], scale: f32, take: &mut dyn FnMut(Group)) {
    for block in bytes.chunks_exact(TensorType::Nvfp4.block_bytes()) {
        requantize::each(&nvfp4::numbers(block).map(|number| number * scale), 8, take);
    }
}

/// The float16 at the begin of `bytes`.
fn float(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// A block with a scale alone, whose codes stand for numbers around zero.
fn group_of_8(block: &[u8], codes: &[u8; GROUP], zero: f32) -> Group {
    let scale = float(block);
    Group { scale, bias: -zero * scale, codes: *codes }
}

fn group_with_minimum(block: &[u8], codes: [u8; GROUP]) -> Group {
    Group { scale: float(block), bias: float(&block[2..]), codes }
}

/// 16 bytes: the low halves are the first 16 codes.
pub fn nibbles(bytes: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|at| match at {
        0..16 => bytes[at] & 15,
        _ => bytes[at - 16] >> 4,
    })
}

fn fifth_bits(high: &[u8], low: [u8; GROUP]) -> [u8; GROUP] {
    std::array::from_fn(|at| low[at] | (high[at / 8] >> (at % 8) & 1) << 4)
}

fn offset_bytes(bytes: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|at| bytes[at] ^ 0x80)
}
