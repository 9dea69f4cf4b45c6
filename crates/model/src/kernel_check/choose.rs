//! Check of the choice of tokens.

use mlx::gpu::LogitEdits;
use mlx::{Array, Dtype};

use super::{KernelCheck, KernelTimes, Measure, normal, time};
use crate::blueprint::Blueprint;

/// Rows of a decode step.
const ROWS: i32 = 16;
/// Tokens that the filter keeps.
const TOP_K: i32 = 20;

/// Entries of each row whose logits are edited.
const EDITED: i32 = 64;

/// The kernel on logits as they are, and on edited ones.
pub(super) fn checks(blueprint: &Blueprint, measure: Measure) -> Vec<KernelCheck> {
    let vocab = blueprint.vocab;
    let plain = KernelCheck::new("choose", format!("{ROWS} x {vocab}, top-k {TOP_K}"), Dtype::F32, || {
        let logits = logits(vocab)?;
        let expected = on_host(&logits.to_vec::<f32>()?, vocab, |_, logit| logit);
        let ours = |shares: &[f32]| ours(&logits, shares, None);
        compare(&logits, measure, &expected, ours, |shares| by_sorting(&logits, shares))
    });
    let shape = format!("{ROWS} x {vocab}, top-k {TOP_K}, {EDITED} edited, masked");
    let edited = KernelCheck::new("choose_edited", shape, Dtype::F32, || {
        let logits = logits(vocab)?;
        let edits = Edits::new(logits.dim(1)?)?;
        let expected =
            on_host(&logits.to_vec::<f32>()?, vocab, |token, logit| edited_logit(token, logit, vocab));
        let ours = |shares: &[f32]| ours(&logits, shares, Some(edits.operands()));
        compare(&logits, measure, &expected, ours, |shares| by_sorting(&edits.apply(&logits)?, shares))
    });
    vec![plain, edited]
}

/// Tokens chosen in both ways, lazily.
pub(super) fn build(blueprint: &Blueprint) -> mlx::Result<Array> {
    let logits = logits(blueprint.vocab)?;
    let edits = Edits::new(logits.dim(1)?)?;
    let shares: Vec<f32> = (0..ROWS).map(share).collect();
    ours(&logits, &shares, None)?;
    ours(&logits, &shares, Some(edits.operands()))
}

fn logits(vocab: usize) -> mlx::Result<Array> {
    let logits = normal(&[ROWS as usize, vocab], Dtype::F32, 11)? * 3.0;
    logits.eval()?;
    Ok(logits)
}

/// The share of rows whose tokens differ, and in a table the times of both: MLX compiles its operations for seconds.
fn compare(
    logits: &Array,
    measure: Measure,
    expected: &[i32],
    ours: impl Fn(&[f32]) -> mlx::Result<Array>,
    mlx: impl Fn(&[f32]) -> mlx::Result<Array>,
) -> mlx::Result<(f64, Option<KernelTimes>)> {
    let shares: Vec<f32> = (0..ROWS).map(share).collect();
    let tokens = ours(&shares)?.to_vec::<i32>()?;
    let wrong = tokens.iter().zip(expected).filter(|(token, expected)| token != expected).count();
    let times = match measure {
        Measure::Load => None,
        Measure::Table => Some(KernelTimes {
            ours_us: time(measure, || Ok(vec![ours(&shares)?]))?,
            mlx_us: time(measure, || Ok(vec![mlx(&shares)?]))?,
            bytes: logits.nbytes() as f64,
        }),
    };
    Ok((wrong as f64 / f64::from(ROWS), times))
}

/// The share of the likelihood that a row's token passes.
fn share(row: i32) -> f32 {
    (row as f32 + 0.5) / ROWS as f32
}

/// The first of the most likely tokens of each row, in the order of ids, that passes the share of their weight. Of tokens that
/// are equally likely the first ones are kept. `edit`: of a token's logit.
fn on_host(logits: &[f32], vocab: usize, edit: impl Fn(usize, f32) -> f32) -> Vec<i32> {
    let choose = |(row, logits): (usize, &[f32])| {
        let edited: Vec<f64> =
            logits.iter().enumerate().map(|(token, logit)| f64::from(edit(token, *logit))).collect();
        let mut descending: Vec<(usize, f64)> = edited.into_iter().enumerate().collect();
        descending.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let most = descending.first().map_or(0.0, |(_, logit)| *logit);
        let mut kept: Vec<(usize, f64)> = descending
            .into_iter()
            .take(TOP_K as usize)
            .map(|(token, logit)| (token, (logit - most).exp()))
            .collect();
        kept.sort_by_key(|(token, _)| *token);
        let passed = kept.iter().map(|(_, weight)| weight).sum::<f64>() * f64::from(share(row as i32));
        let mut sum = 0.0;
        let chosen = kept.iter().find(|(_, weight)| {
            sum += weight;
            sum > passed
        });
        chosen.map_or(vocab, |(token, _)| *token) as i32
    };
    logits.chunks(vocab.max(1)).enumerate().map(choose).collect()
}

/// A token's logit after [`Edits`].
fn edited_logit(token: usize, logit: f32, vocab: usize) -> f32 {
    let edited = EDITED.min(vocab as i32).max(8) as usize;
    let step = (vocab / edited).max(1);
    let biased = logit + BIAS;
    match (token % 2, token.is_multiple_of(step) && token / step < edited) {
        (1, _) => MASKED,
        (_, false) => logit,
        (_, true) if biased > 0.0 => biased / PENALTY - SUBTRACT,
        (_, true) => biased * PENALTY - SUBTRACT,
    }
}

/// Penalties of the same few tokens of each row, and a mask of the odd ones.
struct Edits {
    starts: Array,
    tokens: Array,
    changes: Array,
    places: Array,
    masks: Array,
}

const BIAS: f32 = 0.75;
const PENALTY: f32 = 1.5;
const SUBTRACT: f32 = 0.25;
/// The logit of a token that the mask forbids.
const MASKED: f32 = -1e30;

impl Edits {
    fn new(vocab: i32) -> mlx::Result<Self> {
        let edited = EDITED.min(vocab).max(8);
        let starts: Vec<i32> = (0..=ROWS).map(|row| row * edited).collect();
        let step = (vocab / edited).max(1);
        let tokens: Vec<i32> = (0..ROWS).flat_map(|_| (0..edited).map(move |at| at * step)).collect();
        let changes = [BIAS, PENALTY, SUBTRACT].repeat(tokens.len());
        let words = (vocab + 31) / 32;
        Ok(Self {
            starts: Array::from_slice(&starts, &[ROWS + 1])?,
            changes: Array::from_slice(&changes, &[tokens.len() as i32, 3])?,
            tokens: Array::from_slice(&tokens, &[tokens.len() as i32])?,
            places: Array::from_slice(&[0; ROWS as usize], &[ROWS])?,
            masks: Array::from_slice(&vec![0x5555_5555_u32; words as usize], &[1, words])?,
        })
    }

    fn operands(&self) -> LogitEdits<'_> {
        let Self { starts, tokens, changes, places, masks } = self;
        LogitEdits { starts, edited: tokens, changes, places, masks }
    }

    /// The edited logits by MLX's operations.
    fn apply(&self, logits: &Array) -> mlx::Result<Array> {
        let [rows, vocab] = logits.dims()?;
        let edited = self.tokens.dim(0)? / rows;
        let tokens = self.tokens.slice(&[0], &[edited])?;
        let biased = logits.take(&tokens, 1)? + BIAS;
        let positive = biased.greater(&Array::scalar(0.0, Dtype::F32)?)?;
        let changed = mlx::where_(&positive, &(&biased / PENALTY), &(&biased * PENALTY))? - SUBTRACT;
        let columns = logits.transpose(&[1, 0])?.scatter_rows(&tokens, &changed.transpose(&[1, 0])?)?;
        let even: Vec<i32> = (0..vocab).map(|token| i32::from(token % 2 == 0)).collect();
        let even = Array::from_slice(&even, &[1, vocab])?.astype(Dtype::Bool)?;
        mlx::where_(&even, &columns.transpose(&[1, 0])?, &Array::scalar(MASKED, Dtype::F32)?)
    }
}

fn ours(logits: &Array, shares: &[f32], edits: Option<LogitEdits<'_>>) -> mlx::Result<Array> {
    let numbers: Vec<f32> = shares.iter().flat_map(|share| [1.0, 1.0, 0.0, *share]).collect();
    let numbers = Array::from_slice(&numbers, &[ROWS, 4])?;
    mlx::gpu::choose_tokens(logits, &numbers, &Array::from_slice(&[TOP_K; ROWS as usize], &[ROWS])?, edits)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equally_likely_tokens_the_first_are_kept() {
        const VOCAB: usize = 100;
        let tokens = on_host(&[0.0; VOCAB * ROWS as usize], VOCAB, |_, logit| logit);
        assert_eq!(tokens.iter().max(), Some(&(TOP_K - 1)), "{tokens:?}");
    }

    #[test]
    fn the_host_and_mlx_choose_the_same_tokens() {
        const VOCAB: usize = 1000;
        let logits = logits(VOCAB).unwrap();
        let values = logits.to_vec::<f32>().unwrap();
        let shares: Vec<f32> = (0..ROWS).map(share).collect();
        let tokens = |logits: &Array| by_sorting(logits, &shares).unwrap().to_vec::<i32>().unwrap();
        let plain = on_host(&values, VOCAB, |_, logit| logit);
        assert_eq!(plain, tokens(&logits));
        let edits = Edits::new(VOCAB as i32).unwrap();
        let edited = on_host(&values, VOCAB, |token, logit| edited_logit(token, logit, VOCAB));
        assert_eq!(edited, tokens(&edits.apply(&logits).unwrap()));
        assert_ne!(edited, plain);
    }
}
