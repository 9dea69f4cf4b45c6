//! Weighted sums of values, some rows at a time.

use super::Room;
use crate::attention::{KEYS, ROWS};
use crate::simd::{Simd, Work};

/// Some rows by up to four vectors of values.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub room: &'a Room,
    pub values: &'a [*const f32; KEYS],
    pub keys: (usize, usize),
    pub first: usize,
    pub at: usize,
    pub v_width: usize,
    pub decay: &'a [f32; ROWS],
}

/// `N` rows by so many vectors.
///
/// # Safety
/// What the part names is readable, and its results are writable.
#[inline(always)]
pub(super) unsafe fn mix<S: Simd, const N: usize>(part: Part, vectors: usize) {
    match vectors {
        1 => S::call(Mix::<N, 1>(part)),
        2 => S::call(Mix::<N, 2>(part)),
        3 => {
            S::call(Mix::<N, 2>(part));
            S::call(Mix::<N, 1>(Part { at: part.at + 2 * S::LANES, ..part }))
        }
        _ => S::call(Mix::<N, 4>(part)),
    }
}

/// `N` rows by `NV` vectors.
struct Mix<'a, const N: usize, const NV: usize>(Part<'a>);

impl<const N: usize, const NV: usize> Work for Mix<'_, N, NV> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Part { room, values, keys, first, at, v_width, decay } = self.0;
        let mut acc = [[S::splat(0.0); NV]; N];
        let weights = room.scores.add(first * KEYS);
        for key in keys.0..keys.1 {
            let value = values.get_unchecked(key).add(at);
            let mut v = [S::splat(0.0); NV];
            for i in 0..NV {
                v[i] = S::load(value.add(i * S::LANES));
            }
            for r in 0..N {
                let weight = S::splat(*weights.add(r * KEYS + key));
                for i in 0..NV {
                    acc[r][i] = S::fma(weight, v[i], acc[r][i]);
                }
            }
        }
        for r in 0..N {
            let out = room.out.add((first + r) * v_width + at);
            let decay = S::splat(decay[first + r]);
            for i in 0..NV {
                let out = out.add(i * S::LANES);
                S::store(out, S::fma(S::load(out), decay, acc[r][i]));
            }
        }
    }
}
