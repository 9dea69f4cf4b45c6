//! Against sums in f64, over random shapes.

use super::{Product, is_usable};
use crate::element::{Float, Input, Output};
use crate::half::{bf16_from_f32, bf16_to_f32, f16_from_f32, f16_to_f32};
use crate::weights::{Source, Weights};

/// Values from −1 to 1, from a linear congruence.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Weights of a type: as stored, and as f32.
fn stored(float: Float, values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let halves = |to: fn(f32) -> u16, from: fn(u16) -> f32| {
        let halves: Vec<u16> = values.iter().map(|value| to(*value)).collect();
        (
            halves.iter().flat_map(|half| half.to_ne_bytes()).collect(),
            halves.iter().map(|half| from(*half)).collect(),
        )
    };
    match float {
        Float::F32 => (values.iter().flat_map(|value| value.to_ne_bytes()).collect(), values.to_vec()),
        Float::F16 => halves(f16_from_f32, f16_to_f32),
        Float::Bf16 => halves(bf16_from_f32, bf16_to_f32),
    }
}

fn product(x: &[f32], weights: &[u8], float: Float, [rows, n, k]: [usize; 3]) -> Vec<f32> {
    let mut out = vec![f32::NAN; rows * n];
    let source = Source {
        weights: Weights::Dense(float),
        table: std::ptr::null(),
        words: weights.as_ptr(),
        scales: std::ptr::null(),
        biases: std::ptr::null(),
        n,
        k,
    };
    let x = Input(x.as_ptr().cast(), Float::F32);
    let to = Output { to: out.as_mut_ptr().cast(), float: Float::F32, bias: None };
    // SAFETY: the buffers have these sizes, and the callers have looked for the unit.
    unsafe { Product { source, rows, x, out: to }.run() };
    out
}

#[test]
fn sums_are_those_of_f64_to_the_last_bits_of_f32() {
    if !is_usable() {
        return;
    }
    for (seed, [rows, n, k]) in
        [[1, 1, 1], [3, 7, 5], [16, 32, 32], [17, 33, 31], [40, 100, 300], [530, 48, 257], [2, 70, 1536]]
            .into_iter()
            .enumerate()
    {
        for float in [Float::F32, Float::F16, Float::Bf16] {
            let x = values(rows * k, seed as u32);
            let (bytes, weights) = stored(float, &values(n * k, 77 + seed as u32));
            let got = product(&x, &bytes, float, [rows, n, k]);
            for (at, got) in got.iter().enumerate() {
                let terms = || {
                    let (x, w) = (&x[at / n * k..][..k], &weights[at % n * k..][..k]);
                    x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w))
                };
                let (sum, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                // As sums of f32 have it: some roundings of 2^-24 each.
                let error = (f64::from(*got) - sum).abs();
                assert!(error <= size * 4e-7, "{float:?} {rows}x{n}x{k} at {at}: {got} is not {sum}");
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    if !is_usable() {
        return;
    }
    let [rows, n, k] = [1100, 40, 300];
    let x = values(rows * k, 5);
    let (bytes, _) = stored(Float::F32, &values(n * k, 6));
    let all = product(&x, &bytes, Float::F32, [rows, n, k]);
    for row in [0, 1, 15, 16, 500, 511, 512, 1023, 1099] {
        let alone = product(&x[row * k..][..k], &bytes, Float::F32, [1, n, k]);
        assert_eq!(alone, all[row * n..][..n], "row {row}");
    }
}
