//! The dot product extension of Armv8.2.

use std::arch::aarch64::*;
use std::arch::asm;
use std::mem::transmute;

use super::{Dot, DotWork};
use crate::simd::portable::{I4, Portable};

#[derive(Clone, Copy)]
pub(super) struct Neon;

/// Four sums as the registers that intrinsics take.
#[inline(always)]
fn as_sums(value: I4) -> int32x4_t {
    // SAFETY: both are sixteen bytes, of which every value is valid.
    unsafe { transmute::<I4, int32x4_t>(value) }
}

/// Sixteen bytes as the registers that intrinsics take.
#[inline(always)]
fn as_bytes(value: I4) -> int8x16_t {
    // SAFETY: both are sixteen bytes, of which every value is valid.
    unsafe { transmute::<I4, int8x16_t>(value) }
}

/// Adds the products of signed bytes. (The intrinsic is not in stable Rust.)
#[inline(always)]
unsafe fn sdot(sums: I4, w: int8x16_t, x: I4) -> I4 {
    let (mut sums, x) = (as_sums(sums), as_bytes(x));
    asm!(
        ".arch_extension dotprod",
        "sdot {sums:v}.4s, {w:v}.16b, {x:v}.16b",
        sums = inout(vreg) sums, w = in(vreg) w, x = in(vreg) x,
        options(pure, nomem, nostack, preserves_flags),
    );
    transmute(sums)
}

#[target_feature(enable = "neon,dotprod")]
unsafe fn with_neon<W: DotWork>(work: W) -> W::Output {
    work.run::<Neon>()
}

impl Dot for Neon {
    type S = Portable;

    #[inline(always)]
    unsafe fn dot_nibbles(sums: I4, w: I4, x: I4) -> I4 {
        sdot(sums, as_bytes(w), x)
    }
    #[inline(always)]
    unsafe fn finish_nibbles(sums: I4) -> I4 {
        sums
    }
    #[inline(always)]
    unsafe fn dot_bytes(sums: I4, w: I4, x: I4) -> I4 {
        // As a signed byte the top bit is −128, so its products are subtracted.
        let w: uint8x16_t = transmute(w);
        let low = sdot(sums, vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(0x7f))), x);
        let top = sdot(I4([0; 4]), vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(0x80))), x);
        transmute(vsubq_s32(as_sums(low), as_sums(top)))
    }
    #[inline(always)]
    unsafe fn call<W: DotWork>(work: W) -> W::Output {
        with_neon(work)
    }
}
