//! The vector operations that kernels are written in, once for all instruction sets.
//!
//! A vector is a row of *quads*, groups of four f32 lanes. Products sum over K in the four lanes of a quad,
//! so how many quads a machine has changes which columns share a vector but never the order of a sum: all
//! instruction sets with fused multiply-add give the same matrix products, bit for bit.
//! Invariant: every function here is inlined into [`with`]'s wrappers, the only places that enable features.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::environment::variable;

pub(super) mod dot;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

/// One instruction set.
///
/// # Safety
/// All functions need the instruction set to be present, and pointers to be valid for the lanes they touch.
#[allow(clippy::missing_safety_doc)]
pub(super) trait Simd: Copy + Send + Sync + 'static {
    /// f32 lanes.
    type F: Copy;
    /// 32-bit integer lanes.
    type I: Copy;
    /// Lanes in a vector; four times [`QUADS`](Self::QUADS).
    const LANES: usize;
    const QUADS: usize = Self::LANES / 4;
    /// Whether 32 vector registers exist, rather than 16.
    const MANY_REGISTERS: bool;

    unsafe fn splat(v: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    unsafe fn load_f16(p: *const u16) -> Self::F;
    unsafe fn store_f16(p: *mut u16, v: Self::F);
    unsafe fn load_bf16(p: *const u16) -> Self::F;
    unsafe fn store_bf16(p: *mut u16, v: Self::F);

    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// The larger; `b` when one is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller; `b` when one is not a number.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the machine can.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a * b + c` of one value, rounded once where the machine can.
    fn fma1(a: f32, b: f32, c: f32) -> f32;
    /// To the nearest integer, for magnitudes below 2^22.
    unsafe fn round(v: Self::F) -> Self::F;
    /// 2 to the power of an integral `n` in -127..=127; 0 at -127.
    unsafe fn pow2(n: Self::F) -> Self::F;
    /// The sign of `sign` on the magnitude of `v`.
    unsafe fn copysign(v: Self::F, sign: Self::F) -> Self::F;

    /// Sum of the lanes in a fixed order.
    unsafe fn sum(v: Self::F) -> f32;
    unsafe fn largest(v: Self::F) -> f32;

    /// Four values, repeated in every quad.
    unsafe fn quad(p: *const f32) -> Self::F;
    /// 16 bytes of each of `QUADS` rows, `stride` bytes apart.
    unsafe fn rows(p: *const u8, stride: usize) -> Self::I;
    /// One value of each of `QUADS` rows, `stride` values apart, repeated over its quad.
    unsafe fn rows_splat(p: *const f32, stride: usize) -> Self::F;
    /// Sums each quad of four vectors as `(0 + 2) + (1 + 3)`; lane `i` is quad `i % QUADS` of vector `i / QUADS`.
    unsafe fn sum_quads(v: [Self::F; 4]) -> Self::F;

    unsafe fn shift_right(v: Self::I, bits: u32) -> Self::I;
    unsafe fn shift_left(v: Self::I, bits: u32) -> Self::I;
    unsafe fn and(v: Self::I, mask: u32) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn to_float(v: Self::I) -> Self::F;
    unsafe fn as_float(v: Self::I) -> Self::F;
    /// The low four bits of each lane as a number.
    unsafe fn low_nibble(v: Self::I) -> Self::F {
        Self::to_float(Self::and(v, 15))
    }

    unsafe fn no_words() -> Self::I;
    /// Four bytes, repeated in every lane.
    unsafe fn word(p: *const u8) -> Self::I;
    unsafe fn load_words(p: *const u32) -> Self::I;
    unsafe fn store_words(p: *mut u32, v: Self::I);
    /// Transposes each quad: lane `i` of vector `v` becomes lane `v` of vector `i`.
    unsafe fn transpose(v: [Self::I; 4]) -> [Self::I; 4];
    /// 32 values times `factor`, below 128 in magnitude, to the nearest integer, ties to even.
    unsafe fn to_bytes(p: *const f32, factor: f32) -> [i8; 32];

    /// Runs `work` as a function of its own with this instruction set.
    unsafe fn call<W: Work>(work: W) -> W::Output;
}

/// A piece of work that is compiled once per instruction set. `run` must be `#[inline(always)]`.
pub(super) trait Work {
    type Output;
    /// # Safety
    /// The instruction set `S` is present; pointers inside `self` are valid.
    unsafe fn run<S: Simd>(self) -> Self::Output;
}

/// Instruction sets, from the one that all machines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    Portable = 1,
    Avx2,
    Avx512,
}

static CURRENT: AtomicU8 = AtomicU8::new(0);

/// The instruction set in use: the best present, or less if `OMNIBUS_CPU_ISA` (`portable`, `avx2`) says so.
pub fn isa() -> Isa {
    match CURRENT.load(Ordering::Relaxed) {
        1 => Isa::Portable,
        2 => Isa::Avx2,
        3 => Isa::Avx512,
        _ => limit_isa(match variable("OMNIBUS_CPU_ISA").as_deref() {
            Some("portable") => Isa::Portable,
            Some("avx2") => Isa::Avx2,
            _ => Isa::Avx512,
        }),
    }
}

/// Limits the instruction set to `most` from now on, and returns the one in use. For tests.
pub fn limit_isa(most: Isa) -> Isa {
    let chosen = most.min(best());
    CURRENT.store(chosen as u8, Ordering::Relaxed);
    chosen
}

#[cfg(target_arch = "x86_64")]
fn best() -> Isa {
    use std::is_x86_feature_detected as has;
    if !(has!("avx2") && has!("fma") && has!("f16c")) {
        Isa::Portable
    } else if has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq") {
        Isa::Avx512
    } else {
        Isa::Avx2
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> Isa {
    Isa::Portable
}

impl Isa {
    /// Lanes of a vector.
    pub(super) fn lanes(self) -> usize {
        match self {
            Isa::Portable => 4,
            Isa::Avx2 => 8,
            Isa::Avx512 => 16,
        }
    }

    /// Rows that a register tile holds: the sums of each take four vectors.
    pub(super) fn panel_rows(self) -> usize {
        if self == Isa::Avx512 || cfg!(target_arch = "aarch64") { 6 } else { 3 }
    }
}

/// Runs `work` with an instruction set that [`isa`] gave.
///
/// # Safety
/// Pointers inside `work` are valid.
#[inline]
pub(super) unsafe fn with<W: Work>(isa: Isa, work: W) -> W::Output {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => x86::with_avx512(work),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => x86::with_avx2(work),
        _ => work.run::<portable::Portable>(),
    }
}

/// Prefetches the cache line at `address`, which may be anywhere: it is only a hint. It goes to the second-level cache:
/// what the first one holds is in use.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching never faults, and every x86-64 can.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
