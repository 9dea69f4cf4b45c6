//! Dot products of bytes in 32-bit integers, by the instructions that a machine has for them.
//!
//! Invariant: sums are exact, so every implementation gives the same ones.

use super::{Isa, Simd};

#[cfg(target_arch = "aarch64")]
mod arm;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Bytes that are summed before [`Dot::finish_nibbles`].
pub(crate) const BLOCK: usize = 32;

type Words<D> = <<D as Dot>::S as Simd>::I;

/// How one machine multiplies bytes. A word holds four: unsigned ones of `w`, signed ones of `x` from −127 on.
///
/// # Safety
/// As for [`Simd`].
#[allow(clippy::missing_safety_doc)]
pub(crate) trait Dot: Copy + Send + Sync + 'static {
    /// The other vector operations.
    type S: Simd;

    /// Adds the four products of each word, with bytes of `w` below 16, to sums that start as zeros and are read by
    /// [`finish_nibbles`](Self::finish_nibbles) after at most [`BLOCK`] bytes.
    unsafe fn dot_nibbles(sums: Words<Self>, w: Words<Self>, x: Words<Self>) -> Words<Self>;
    /// The sums of nibbles as 32-bit integers.
    unsafe fn finish_nibbles(sums: Words<Self>) -> Words<Self>;
    /// Adds the four products of each word to 32-bit integers.
    unsafe fn dot_bytes(sums: Words<Self>, w: Words<Self>, x: Words<Self>) -> Words<Self>;

    /// Runs `work` as a function of its own with these instructions.
    unsafe fn call<W: DotWork>(work: W) -> W::Output;
}

/// A piece of work that is compiled once per implementation. `run` must be `#[inline(always)]`.
pub(crate) trait DotWork {
    type Output;
    /// # Safety
    /// The instructions are present; pointers inside `self` are valid.
    unsafe fn run<D: Dot>(self) -> Self::Output;
}

/// Implementations of [`Dot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "a target has some of them; tests name all"))]
pub(crate) enum DotIsa {
    /// Multiplications of 32-bit lanes.
    Portable,
    /// Products summed in pairs of 16 bits, 8 lanes.
    Avx2,
    /// AVX-VNNI, 8 lanes.
    AvxVnni,
    /// Products summed in pairs of 16 bits, 16 lanes.
    Avx512,
    /// AVX512-VNNI, 16 lanes.
    Avx512Vnni,
    /// The dot product extension of Armv8.2, 4 lanes.
    Neon,
}

/// The fastest implementation that this machine has within an instruction set that [`isa`](super::isa) gave.
pub(crate) fn dot_isa(isa: Isa) -> DotIsa {
    match isa {
        Isa::Avx512 if has(DotIsa::Avx512Vnni) => DotIsa::Avx512Vnni,
        Isa::Avx512 => DotIsa::Avx512,
        Isa::Avx2 if has(DotIsa::AvxVnni) => DotIsa::AvxVnni,
        Isa::Avx2 => DotIsa::Avx2,
        Isa::Portable if has(DotIsa::Neon) => DotIsa::Neon,
        Isa::Portable => DotIsa::Portable,
    }
}

/// Whether this machine has an implementation.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has(dot: DotIsa) -> bool {
    use std::is_x86_feature_detected as has;
    match dot {
        DotIsa::Portable => true,
        DotIsa::Neon => false,
        DotIsa::Avx2 => super::best() >= Isa::Avx2,
        DotIsa::AvxVnni => super::best() >= Isa::Avx2 && has!("avxvnni"),
        DotIsa::Avx512 => super::best() >= Isa::Avx512,
        DotIsa::Avx512Vnni => super::best() >= Isa::Avx512 && has!("avx512vnni"),
    }
}

/// Whether this machine has an implementation.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn has(dot: DotIsa) -> bool {
    match dot {
        DotIsa::Portable => true,
        #[cfg(target_arch = "aarch64")]
        DotIsa::Neon => std::arch::is_aarch64_feature_detected!("dotprod"),
        _ => false,
    }
}

impl DotIsa {
    /// Lanes of a vector.
    pub(crate) fn lanes(self) -> usize {
        match self {
            DotIsa::Portable | DotIsa::Neon => 4,
            DotIsa::Avx2 | DotIsa::AvxVnni => 8,
            DotIsa::Avx512 | DotIsa::Avx512Vnni => 16,
        }
    }

    /// Whether 32 vector registers exist, rather than 16.
    pub(crate) fn many_registers(self) -> bool {
        matches!(self, DotIsa::Avx512 | DotIsa::Avx512Vnni) || cfg!(target_arch = "aarch64")
    }
}

/// Runs `work` with an implementation that this machine has.
///
/// # Safety
/// [`has`] is true of it; pointers inside `work` are valid.
#[inline]
pub(crate) unsafe fn with<W: DotWork>(dot: DotIsa, work: W) -> W::Output {
    match dot {
        #[cfg(target_arch = "x86_64")]
        DotIsa::Avx512Vnni => x86::Avx512Vnni::call(work),
        #[cfg(target_arch = "x86_64")]
        DotIsa::Avx512 => x86::Avx512Pairs::call(work),
        #[cfg(target_arch = "x86_64")]
        DotIsa::AvxVnni => x86::AvxVnni::call(work),
        #[cfg(target_arch = "x86_64")]
        DotIsa::Avx2 => x86::Avx2Pairs::call(work),
        #[cfg(target_arch = "aarch64")]
        DotIsa::Neon => arm::Neon::call(work),
        _ => portable::PortableDot::call(work),
    }
}
