//! Dot products of bytes without an instruction for them.

use super::{Dot, DotWork};
use crate::simd::portable::{I4, Portable};

#[derive(Clone, Copy)]
pub(super) struct PortableDot;

impl Dot for PortableDot {
    type S = Portable;

    #[inline(always)]
    unsafe fn dot_nibbles(sums: I4, w: I4, x: I4) -> I4 {
        Self::dot_bytes(sums, w, x)
    }
    #[inline(always)]
    unsafe fn finish_nibbles(sums: I4) -> I4 {
        sums
    }
    #[inline(always)]
    unsafe fn dot_bytes(mut sums: I4, w: I4, x: I4) -> I4 {
        for lane in 0..4 {
            let (w, x) = (w.0[lane].to_le_bytes(), x.0[lane].to_le_bytes());
            for i in 0..4 {
                let product = i32::from(w[i]) * i32::from(x[i] as i8);
                sums.0[lane] = sums.0[lane].wrapping_add(product as u32);
            }
        }
        sums
    }
    #[inline(never)]
    unsafe fn call<W: DotWork>(work: W) -> W::Output {
        work.run::<Self>()
    }
}
