//! Check of the choice of tokens.

use mlx::{Array, Dtype};

use super::{KernelCheck, KernelTimes, Measure, normal, time};
use crate::Blueprint;

/// Rows of a decode step.
const ROWS: i32 = 16;
/// Tokens that the filter keeps.
const TOP_K: i32 = 20;

pub(super) fn check(blueprint: &Blueprint, measure: Measure) -> KernelCheck {
    let vocab = blueprint.vocab;
    KernelCheck::new("choose", format!("{ROWS} x {vocab}, top-k {TOP_K}"), Dtype::F32, || {
        let logits = normal(&[ROWS as usize, vocab], Dtype::F32, 11)? * 3.0;
        logits.eval()?;
        let shares: Vec<f32> = (0..ROWS).map(|row| (row as f32 + 0.5) / ROWS as f32).collect();
        let ours = || ours(&logits, &shares);
        let mlx = || by_sorting(&logits, &shares);
        let (tokens, expected) = (ours()?.to_vec::<i32>()?, mlx()?.to_vec::<i32>()?);
        let wrong = tokens.iter().zip(&expected).filter(|(token, expected)| token != expected).count();
        let times = match measure {
            Measure::Errors => None,
            Measure::Times => Some(KernelTimes {
                ours_us: time(|| Ok(vec![ours()?]))?,
                mlx_us: time(|| Ok(vec![mlx()?]))?,
                bytes: logits.nbytes() as f64,
            }),
        };
        Ok((wrong as f64 / f64::from(ROWS), times))
    })
}

fn ours(logits: &Array, shares: &[f32]) -> mlx::Result<Array> {
    let numbers: Vec<f32> = shares.iter().flat_map(|share| [1.0, 1.0, 0.0, *share]).collect();
    let numbers = Array::from_slice(&numbers, &[ROWS, 4])?;
    mlx::gpu::choose_tokens(logits, &numbers, &Array::from_slice(&[TOP_K; ROWS as usize], &[ROWS])?)
}

/// The first of the most likely tokens, in the order of ids, that passes the share of their weight.
fn by_sorting(logits: &Array, shares: &[f32]) -> mlx::Result<Array> {
    let last = logits.dim(1)? - TOP_K;
    let ascending = logits.take_along_axis(&logits.argsort(-1)?, -1)?;
    let least = ascending.slice(&[0, last], &[ROWS, last + 1])?;
    let weights = logits.softmax(-1)? * logits.greater_equal(&least)?.astype(Dtype::F32)?;
    let cumulative = weights.cumsum(-1)?;
    let total = weights.sum(&[-1])?.expand_dims(&[-1])?;
    let share = total * Array::from_slice(shares, &[ROWS, 1])?;
    cumulative.less_equal(&share)?.astype(Dtype::I32)?.sum(&[-1])
}
