//! Quads as arrays of four floats, which compilers turn into whatever vectors the target always has.

use super::{Simd, Work};
use crate::half::{bf16_from_f32, bf16_to_f32, f16_from_f32, f16_to_f32};

#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[derive(Clone, Copy)]
#[repr(align(16))]
pub(crate) struct F4([f32; 4]);

#[derive(Clone, Copy)]
#[repr(align(16))]
pub(crate) struct I4(pub(super) [u32; 4]);

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> F4 {
    F4([f(0), f(1), f(2), f(3)])
}

#[inline(always)]
fn bits(f: impl Fn(usize) -> u32) -> I4 {
    I4([f(0), f(1), f(2), f(3)])
}

impl Simd for Portable {
    type F = F4;
    type I = I4;
    const LANES: usize = 4;
    const MANY_REGISTERS: bool = cfg!(target_arch = "aarch64");

    #[inline(always)]
    unsafe fn splat(v: f32) -> F4 {
        F4([v; 4])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> F4 {
        F4(p.cast::<[f32; 4]>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: F4) {
        p.cast::<[f32; 4]>().write_unaligned(v.0)
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> F4 {
        each(|i| f16_to_f32(*p.add(i)))
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: F4) {
        for (i, v) in v.0.into_iter().enumerate() {
            *p.add(i) = f16_from_f32(v);
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> F4 {
        each(|i| bf16_to_f32(*p.add(i)))
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: F4) {
        for (i, v) in v.0.into_iter().enumerate() {
            *p.add(i) = bf16_from_f32(v);
        }
    }
    #[inline(always)]
    unsafe fn add(a: F4, b: F4) -> F4 {
        each(|i| a.0[i] + b.0[i])
    }
    #[inline(always)]
    unsafe fn sub(a: F4, b: F4) -> F4 {
        each(|i| a.0[i] - b.0[i])
    }
    #[inline(always)]
    unsafe fn mul(a: F4, b: F4) -> F4 {
        each(|i| a.0[i] * b.0[i])
    }
    #[inline(always)]
    unsafe fn div(a: F4, b: F4) -> F4 {
        each(|i| a.0[i] / b.0[i])
    }
    #[inline(always)]
    unsafe fn max(a: F4, b: F4) -> F4 {
        each(|i| if a.0[i] > b.0[i] { a.0[i] } else { b.0[i] })
    }
    #[inline(always)]
    unsafe fn min(a: F4, b: F4) -> F4 {
        each(|i| if a.0[i] < b.0[i] { a.0[i] } else { b.0[i] })
    }
    #[inline(always)]
    unsafe fn fma(a: F4, b: F4, c: F4) -> F4 {
        each(|i| Self::fma1(a.0[i], b.0[i], c.0[i]))
    }
    #[inline(always)]
    fn fma1(a: f32, b: f32, c: f32) -> f32 {
        // Without the instruction, `mul_add` is a slow library call.
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) { a.mul_add(b, c) } else { a * b + c }
    }
    #[inline(always)]
    unsafe fn round(v: F4) -> F4 {
        const MAGIC: f32 = 12582912.0; // 1.5 * 2^23: adding it leaves no room for a fraction
        each(|i| (v.0[i] + MAGIC) - MAGIC)
    }
    #[inline(always)]
    unsafe fn pow2(n: F4) -> F4 {
        each(|i| f32::from_bits(((n.0[i] as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn copysign(v: F4, sign: F4) -> F4 {
        each(|i| v.0[i].copysign(sign.0[i]))
    }
    #[inline(always)]
    unsafe fn sum(v: F4) -> f32 {
        (v.0[0] + v.0[2]) + (v.0[1] + v.0[3])
    }
    #[inline(always)]
    unsafe fn largest(v: F4) -> f32 {
        v.0[0].max(v.0[2]).max(v.0[1].max(v.0[3]))
    }
    #[inline(always)]
    unsafe fn quad(p: *const f32) -> F4 {
        Self::load(p)
    }
    #[inline(always)]
    unsafe fn rows(p: *const u8, _stride: usize) -> I4 {
        let words = p.cast::<[u32; 4]>().read_unaligned();
        bits(|i| u32::from_le(words[i]))
    }
    #[inline(always)]
    unsafe fn rows_splat(p: *const f32, _stride: usize) -> F4 {
        Self::splat(*p)
    }
    #[inline(always)]
    unsafe fn sum_quads(v: [F4; 4]) -> F4 {
        each(|i| (v[i].0[0] + v[i].0[2]) + (v[i].0[1] + v[i].0[3]))
    }
    #[inline(always)]
    unsafe fn shift_right(v: I4, n: u32) -> I4 {
        bits(|i| v.0[i] >> n)
    }
    #[inline(always)]
    unsafe fn shift_left(v: I4, n: u32) -> I4 {
        bits(|i| v.0[i] << n)
    }
    #[inline(always)]
    unsafe fn and(v: I4, mask: u32) -> I4 {
        bits(|i| v.0[i] & mask)
    }
    #[inline(always)]
    unsafe fn or(a: I4, b: I4) -> I4 {
        bits(|i| a.0[i] | b.0[i])
    }
    #[inline(always)]
    unsafe fn to_float(v: I4) -> F4 {
        each(|i| v.0[i] as i32 as f32)
    }
    #[inline(always)]
    unsafe fn as_float(v: I4) -> F4 {
        each(|i| f32::from_bits(v.0[i]))
    }
    #[inline(always)]
    unsafe fn no_words() -> I4 {
        I4([0; 4])
    }
    #[inline(always)]
    unsafe fn word(p: *const u8) -> I4 {
        I4([u32::from_le(p.cast::<u32>().read_unaligned()); 4])
    }
    #[inline(always)]
    unsafe fn load_words(p: *const u32) -> I4 {
        I4(p.cast::<[u32; 4]>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn store_words(p: *mut u32, v: I4) {
        p.cast::<[u32; 4]>().write_unaligned(v.0)
    }
    #[inline(always)]
    unsafe fn transpose(v: [I4; 4]) -> [I4; 4] {
        [0, 1, 2, 3].map(|i| I4([v[0].0[i], v[1].0[i], v[2].0[i], v[3].0[i]]))
    }
    #[inline(always)]
    unsafe fn to_bytes(p: *const f32, factor: f32) -> [i8; 32] {
        const MAGIC: f32 = 12582912.0; // as in `round`: the integer is in the low bits of the sum
        let values = p.cast::<[f32; 32]>().read_unaligned();
        values.map(|v| (v * factor + MAGIC).to_bits() as i8)
    }
    #[inline(never)]
    unsafe fn call<W: Work>(work: W) -> W::Output {
        work.run::<Self>()
    }
}
