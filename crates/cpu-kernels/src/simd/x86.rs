//! AVX-512 (four quads) and AVX2 with FMA and F16C (two quads).

use std::arch::x86_64::*;

use super::{Simd, Work};

/// # Safety
/// AVX-512 F, BW, VL and DQ are present.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi1,bmi2")]
pub(super) unsafe fn with_avx512<W: Work>(work: W) -> W::Output {
    work.run::<Avx512>()
}

/// # Safety
/// AVX2, FMA and F16C are present.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn with_avx2<W: Work>(work: W) -> W::Output {
    work.run::<Avx2>()
}

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    const LANES: usize = 16;
    const MANY_REGISTERS: bool = true;

    #[inline(always)]
    unsafe fn splat(v: f32) -> __m512 {
        _mm512_set1_ps(v)
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        _mm512_loadu_ps(p)
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        _mm512_storeu_ps(p, v)
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: __m512) {
        _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> __m512 {
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()))))
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: __m512) {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        let bits = _mm512_srli_epi32::<16>(_mm512_mask_mov_epi32(rounded, nan, quiet));
        _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(bits))
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        _mm512_sub_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        _mm512_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        _mm512_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        _mm512_min_ps(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    fn fma1(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    unsafe fn round(v: __m512) -> __m512 {
        _mm512_roundscale_ps::<_MM_FROUND_TO_NEAREST_INT>(v)
    }
    #[inline(always)]
    unsafe fn pow2(n: __m512) -> __m512 {
        let n = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
        _mm512_castsi512_ps(_mm512_slli_epi32::<23>(n))
    }
    #[inline(always)]
    unsafe fn copysign(v: __m512, sign: __m512) -> __m512 {
        let top = _mm512_set1_ps(-0.0);
        _mm512_or_ps(_mm512_andnot_ps(top, v), _mm512_and_ps(top, sign))
    }
    #[inline(always)]
    unsafe fn sum(v: __m512) -> f32 {
        _mm512_reduce_add_ps(v)
    }
    #[inline(always)]
    unsafe fn largest(v: __m512) -> f32 {
        _mm512_reduce_max_ps(v)
    }
    #[inline(always)]
    unsafe fn quad(p: *const f32) -> __m512 {
        _mm512_broadcast_f32x4(_mm_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn rows(p: *const u8, stride: usize) -> __m512i {
        let a = _mm512_castsi128_si512(_mm_loadu_si128(p.cast()));
        let a = _mm512_inserti32x4::<1>(a, _mm_loadu_si128(p.add(stride).cast()));
        let a = _mm512_inserti32x4::<2>(a, _mm_loadu_si128(p.add(2 * stride).cast()));
        _mm512_inserti32x4::<3>(a, _mm_loadu_si128(p.add(3 * stride).cast()))
    }
    #[inline(always)]
    unsafe fn rows_splat(p: *const f32, stride: usize) -> __m512 {
        let one = |i: usize| _mm_load_ss(p.add(i * stride));
        let v = _mm512_broadcastss_ps(one(0));
        let v = _mm512_mask_broadcastss_ps(v, 0x00f0, one(1));
        let v = _mm512_mask_broadcastss_ps(v, 0x0f00, one(2));
        _mm512_mask_broadcastss_ps(v, 0xf000, one(3))
    }
    #[inline(always)]
    unsafe fn sum_quads(v: [__m512; 4]) -> __m512 {
        let ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
        let cd = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
        let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
        let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
        let high = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
        // Lane 4q + v holds quad q of vector v.
        let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        _mm512_permutexvar_ps(order, _mm512_add_ps(low, high))
    }
    #[inline(always)]
    unsafe fn shift_right(v: __m512i, bits: u32) -> __m512i {
        _mm512_srlv_epi32(v, _mm512_set1_epi32(bits as i32))
    }
    #[inline(always)]
    unsafe fn shift_left(v: __m512i, bits: u32) -> __m512i {
        _mm512_sllv_epi32(v, _mm512_set1_epi32(bits as i32))
    }
    #[inline(always)]
    unsafe fn and(v: __m512i, mask: u32) -> __m512i {
        _mm512_and_si512(v, _mm512_set1_epi32(mask as i32))
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        _mm512_or_si512(a, b)
    }
    #[inline(always)]
    unsafe fn to_float(v: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(v)
    }
    #[inline(always)]
    unsafe fn as_float(v: __m512i) -> __m512 {
        _mm512_castsi512_ps(v)
    }
    #[inline(always)]
    unsafe fn low_nibble(v: __m512i) -> __m512 {
        // A permutation looks at four bits of an index: one instruction for mask and conversion.
        let numbers = _mm512_setr_ps(0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.);
        _mm512_permutexvar_ps(v, numbers)
    }
    #[inline(always)]
    unsafe fn no_words() -> __m512i {
        _mm512_setzero_si512()
    }
    #[inline(always)]
    unsafe fn word(p: *const u8) -> __m512i {
        _mm512_set1_epi32(p.cast::<i32>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn load_words(p: *const u32) -> __m512i {
        _mm512_loadu_si512(p.cast())
    }
    #[inline(always)]
    unsafe fn store_words(p: *mut u32, v: __m512i) {
        _mm512_storeu_si512(p.cast(), v)
    }
    #[inline(always)]
    unsafe fn transpose(v: [__m512i; 4]) -> [__m512i; 4] {
        let (ab, cd) = (_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpacklo_epi32(v[2], v[3]));
        let (ab2, cd2) = (_mm512_unpackhi_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[2], v[3]));
        [
            _mm512_unpacklo_epi64(ab, cd),
            _mm512_unpackhi_epi64(ab, cd),
            _mm512_unpacklo_epi64(ab2, cd2),
            _mm512_unpackhi_epi64(ab2, cd2),
        ]
    }
    #[inline(always)]
    unsafe fn to_bytes(p: *const f32, factor: f32) -> [i8; 32] {
        let factor = _mm512_set1_ps(factor);
        let low = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(p), factor));
        let high = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(p.add(16)), factor));
        std::mem::transmute([_mm512_cvtepi32_epi8(low), _mm512_cvtepi32_epi8(high)])
    }
    #[inline(always)]
    unsafe fn call<W: Work>(work: W) -> W::Output {
        with_avx512(work)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

impl Simd for Avx2 {
    type F = __m256;
    type I = __m256i;
    const LANES: usize = 8;
    const MANY_REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn splat(v: f32) -> __m256 {
        _mm256_set1_ps(v)
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        _mm256_loadu_ps(p)
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m256) {
        _mm256_storeu_ps(p, v)
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> __m256 {
        _mm256_cvtph_ps(_mm_loadu_si128(p.cast()))
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: __m256) {
        _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> __m256 {
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()))))
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: __m256) {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        let bits = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
        let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(bits, bits));
        _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(packed))
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        _mm256_sub_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        _mm256_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        _mm256_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        _mm256_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        _mm256_min_ps(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    fn fma1(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    unsafe fn round(v: __m256) -> __m256 {
        _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v)
    }
    #[inline(always)]
    unsafe fn pow2(n: __m256) -> __m256 {
        let n = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(n))
    }
    #[inline(always)]
    unsafe fn copysign(v: __m256, sign: __m256) -> __m256 {
        let top = _mm256_set1_ps(-0.0);
        _mm256_or_ps(_mm256_andnot_ps(top, v), _mm256_and_ps(top, sign))
    }
    #[inline(always)]
    unsafe fn sum(v: __m256) -> f32 {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }
    #[inline(always)]
    unsafe fn largest(v: __m256) -> f32 {
        let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
    }
    #[inline(always)]
    unsafe fn quad(p: *const f32) -> __m256 {
        _mm256_broadcast_ps(&*p.cast::<__m128>())
    }
    #[inline(always)]
    unsafe fn rows(p: *const u8, stride: usize) -> __m256i {
        let a = _mm256_castsi128_si256(_mm_loadu_si128(p.cast()));
        _mm256_inserti128_si256::<1>(a, _mm_loadu_si128(p.add(stride).cast()))
    }
    #[inline(always)]
    unsafe fn rows_splat(p: *const f32, stride: usize) -> __m256 {
        let (low, high) = (_mm256_broadcast_ss(&*p), _mm256_broadcast_ss(&*p.add(stride)));
        _mm256_blend_ps::<0xf0>(low, high)
    }
    #[inline(always)]
    unsafe fn sum_quads(v: [__m256; 4]) -> __m256 {
        let ab = _mm256_add_ps(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
        let cd = _mm256_add_ps(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
        let (ab, cd) = (_mm256_castps_pd(ab), _mm256_castps_pd(cd));
        let low = _mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd));
        let high = _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd));
        // Lane 4q + v holds quad q of vector v.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_permutevar8x32_ps(_mm256_add_ps(low, high), order)
    }
    #[inline(always)]
    unsafe fn shift_right(v: __m256i, bits: u32) -> __m256i {
        _mm256_srlv_epi32(v, _mm256_set1_epi32(bits as i32))
    }
    #[inline(always)]
    unsafe fn shift_left(v: __m256i, bits: u32) -> __m256i {
        _mm256_sllv_epi32(v, _mm256_set1_epi32(bits as i32))
    }
    #[inline(always)]
    unsafe fn and(v: __m256i, mask: u32) -> __m256i {
        _mm256_and_si256(v, _mm256_set1_epi32(mask as i32))
    }
    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        _mm256_or_si256(a, b)
    }
    #[inline(always)]
    unsafe fn to_float(v: __m256i) -> __m256 {
        _mm256_cvtepi32_ps(v)
    }
    #[inline(always)]
    unsafe fn as_float(v: __m256i) -> __m256 {
        _mm256_castsi256_ps(v)
    }
    #[inline(always)]
    unsafe fn no_words() -> __m256i {
        _mm256_setzero_si256()
    }
    #[inline(always)]
    unsafe fn word(p: *const u8) -> __m256i {
        _mm256_set1_epi32(p.cast::<i32>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn load_words(p: *const u32) -> __m256i {
        _mm256_loadu_si256(p.cast())
    }
    #[inline(always)]
    unsafe fn store_words(p: *mut u32, v: __m256i) {
        _mm256_storeu_si256(p.cast(), v)
    }
    #[inline(always)]
    unsafe fn transpose(v: [__m256i; 4]) -> [__m256i; 4] {
        let (ab, cd) = (_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpacklo_epi32(v[2], v[3]));
        let (ab2, cd2) = (_mm256_unpackhi_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[2], v[3]));
        [
            _mm256_unpacklo_epi64(ab, cd),
            _mm256_unpackhi_epi64(ab, cd),
            _mm256_unpacklo_epi64(ab2, cd2),
            _mm256_unpackhi_epi64(ab2, cd2),
        ]
    }
    #[inline(always)]
    unsafe fn to_bytes(p: *const f32, factor: f32) -> [i8; 32] {
        let factor = _mm256_set1_ps(factor);
        let mut eights = [_mm256_setzero_si256(); 4];
        for i in 0..4 {
            eights[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p.add(8 * i)), factor));
        }
        // Packing works on halves of a vector; the permutation puts their fours in order.
        let low = _mm256_packs_epi32(eights[0], eights[1]);
        let high = _mm256_packs_epi32(eights[2], eights[3]);
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        std::mem::transmute(_mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order))
    }
    #[inline(always)]
    unsafe fn call<W: Work>(work: W) -> W::Output {
        with_avx2(work)
    }
}
