//! VNNI, and what comes before it: products of bytes summed in pairs of 16 bits.

use std::arch::x86_64::*;

use super::{Dot, DotWork};
use crate::simd::x86::{Avx2, Avx512};

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,bmi1,bmi2")]
unsafe fn with_avx512_vnni<W: DotWork>(work: W) -> W::Output {
    work.run::<Avx512Vnni>()
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi1,bmi2")]
unsafe fn with_avx512<W: DotWork>(work: W) -> W::Output {
    work.run::<Avx512Pairs>()
}

#[target_feature(enable = "avx2,avxvnni,fma,f16c")]
unsafe fn with_avx_vnni<W: DotWork>(work: W) -> W::Output {
    work.run::<AvxVnni>()
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn with_avx2<W: DotWork>(work: W) -> W::Output {
    work.run::<Avx2Pairs>()
}

#[derive(Clone, Copy)]
pub(super) struct Avx512Vnni;

impl Dot for Avx512Vnni {
    type S = Avx512;

    #[inline(always)]
    unsafe fn dot_nibbles(sums: __m512i, w: __m512i, x: __m512i) -> __m512i {
        _mm512_dpbusd_epi32(sums, w, x)
    }
    #[inline(always)]
    unsafe fn finish_nibbles(sums: __m512i) -> __m512i {
        sums
    }
    #[inline(always)]
    unsafe fn dot_bytes(sums: __m512i, w: __m512i, x: __m512i) -> __m512i {
        _mm512_dpbusd_epi32(sums, w, x)
    }
    #[inline(always)]
    unsafe fn call<W: DotWork>(work: W) -> W::Output {
        with_avx512_vnni(work)
    }
}

#[derive(Clone, Copy)]
pub(super) struct AvxVnni;

impl Dot for AvxVnni {
    type S = Avx2;

    #[inline(always)]
    unsafe fn dot_nibbles(sums: __m256i, w: __m256i, x: __m256i) -> __m256i {
        _mm256_dpbusd_avx_epi32(sums, w, x)
    }
    #[inline(always)]
    unsafe fn finish_nibbles(sums: __m256i) -> __m256i {
        sums
    }
    #[inline(always)]
    unsafe fn dot_bytes(sums: __m256i, w: __m256i, x: __m256i) -> __m256i {
        _mm256_dpbusd_avx_epi32(sums, w, x)
    }
    #[inline(always)]
    unsafe fn call<W: DotWork>(work: W) -> W::Output {
        with_avx_vnni(work)
    }
}

/// Sums of pairs in 16 bits. Nibbles: eight of at most 2 · 15 · 127 fit. Bytes: the lower seven bits and the top one
/// apart, since a pair of whole products would not fit.
#[derive(Clone, Copy)]
pub(super) struct Avx512Pairs;

impl Dot for Avx512Pairs {
    type S = Avx512;

    #[inline(always)]
    unsafe fn dot_nibbles(sums: __m512i, w: __m512i, x: __m512i) -> __m512i {
        _mm512_add_epi16(sums, _mm512_maddubs_epi16(w, x))
    }
    #[inline(always)]
    unsafe fn finish_nibbles(sums: __m512i) -> __m512i {
        _mm512_madd_epi16(sums, _mm512_set1_epi16(1))
    }
    #[inline(always)]
    unsafe fn dot_bytes(sums: __m512i, w: __m512i, x: __m512i) -> __m512i {
        let ones = _mm512_set1_epi16(1);
        let low = _mm512_maddubs_epi16(_mm512_and_si512(w, _mm512_set1_epi8(0x7f)), x);
        let top = _mm512_maddubs_epi16(_mm512_and_si512(w, _mm512_set1_epi8(-128)), x);
        let both = _mm512_add_epi32(_mm512_madd_epi16(low, ones), _mm512_madd_epi16(top, ones));
        _mm512_add_epi32(sums, both)
    }
    #[inline(always)]
    unsafe fn call<W: DotWork>(work: W) -> W::Output {
        with_avx512(work)
    }
}

/// As [`Avx512Pairs`].
#[derive(Clone, Copy)]
pub(super) struct Avx2Pairs;

impl Dot for Avx2Pairs {
    type S = Avx2;

    #[inline(always)]
    unsafe fn dot_nibbles(sums: __m256i, w: __m256i, x: __m256i) -> __m256i {
        _mm256_add_epi16(sums, _mm256_maddubs_epi16(w, x))
    }
    #[inline(always)]
    unsafe fn finish_nibbles(sums: __m256i) -> __m256i {
        _mm256_madd_epi16(sums, _mm256_set1_epi16(1))
    }
    #[inline(always)]
    unsafe fn dot_bytes(sums: __m256i, w: __m256i, x: __m256i) -> __m256i {
        let ones = _mm256_set1_epi16(1);
        let low = _mm256_maddubs_epi16(_mm256_and_si256(w, _mm256_set1_epi8(0x7f)), x);
        let top = _mm256_maddubs_epi16(_mm256_and_si256(w, _mm256_set1_epi8(-128)), x);
        let both = _mm256_add_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(top, ones));
        _mm256_add_epi32(sums, both)
    }
    #[inline(always)]
    unsafe fn call<W: DotWork>(work: W) -> W::Output {
        with_avx2(work)
    }
}
