//! Vector forms of the functions that norms, activations and attention need, good to about 1e-7 relative.

use super::simd::Simd;

/// e^x; exactly 1 at 0 and exactly 0 below -88. Polynomial of Cephes' `expf`.
///
/// # Safety
/// The instruction set is present, as for everything below.
#[inline(always)]
pub(super) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // The bounds come first so that "not a number" passes.
    let x = S::min(S::splat(88.376_26), S::max(S::splat(-88.0), x));
    let n = S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
    // ln 2 in two parts: the first has few bits, so its product with n is exact.
    let r = S::fma(n, S::splat(-0.693_359_4), x);
    let r = S::fma(n, S::splat(2.121_944_4e-4), r);
    let mut p = S::splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = S::fma(p, r, S::splat(c));
    }
    let p = S::add(S::fma(S::mul(r, r), p, r), S::splat(1.0));
    S::mul(p, S::pow2(n))
}

/// 1 / (1 + e^-x)
#[inline(always)]
pub(super) unsafe fn sigmoid<S: Simd>(x: S::F) -> S::F {
    let one = S::splat(1.0);
    S::div(one, S::add(one, exp::<S>(S::sub(S::splat(0.0), x))))
}

/// Good to 1e-7 absolute.
#[inline(always)]
pub(super) unsafe fn tanh<S: Simd>(x: S::F) -> S::F {
    S::sub(S::mul(S::splat(2.0), sigmoid::<S>(S::add(x, x))), S::splat(1.0))
}

/// The integral of the normal density up to `x`, good to 1e-7 absolute. Abramowitz and Stegun 7.1.26.
#[inline(always)]
pub(super) unsafe fn normal_cdf<S: Simd>(x: S::F) -> S::F {
    let z = S::mul(S::copysign(x, S::splat(1.0)), S::splat(std::f32::consts::FRAC_1_SQRT_2));
    let t = S::div(S::splat(1.0), S::fma(z, S::splat(0.327_591_1), S::splat(1.0)));
    let mut p = S::splat(1.061_405_4);
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        p = S::fma(p, t, S::splat(c));
    }
    // Half of erfc(|z|): the small side is computed without cancellation.
    let tail = S::mul(S::mul(S::mul(p, t), S::splat(0.5)), exp::<S>(S::mul(S::sub(S::splat(0.0), z), z)));
    // x >= 0: 1 - tail; x < 0: tail. As 0.5 + sign(x) * (0.5 - tail) the small side would cancel.
    let positive = S::max(S::copysign(S::splat(1.0), x), S::splat(0.0));
    S::fma(positive, S::sub(S::splat(1.0), S::add(tail, tail)), tail)
}
