//! Draws by inverting the cumulative distribution: one uniform number a row.
//!
//! The filters follow mlx-lm's meaning: top_p (arXiv 1904.09751 §3.1), min_p (arXiv 2407.01082 §3)
//! and top_k look at the model's own distribution; the temperature shapes the draw among what is left.

use mlx::{Array, Dtype};

use super::Row;
use crate::Sampling;

/// How much work a row's choice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Greedy,
    Plain,
    Filtered,
}

impl Kind {
    fn of(sampling: &Sampling) -> Self {
        let filtered = sampling.top_k > 0 || sampling.top_p < 1.0 || sampling.min_p > 0.0;
        match (sampling.temperature == 0.0 || sampling.top_k == 1, filtered) {
            (true, _) => Self::Greedy,
            (false, false) => Self::Plain,
            (false, true) => Self::Filtered,
        }
    }
}

/// A number in [0, 1) that depends on seed and position alone.
pub fn uniform(seed: u64, position: usize) -> f32 {
    (mix(mix(seed) ^ position as u64) >> 40) as f32 / (1u32 << 24) as f32
}

/// The first number of a seed.
pub(super) fn mix(seed: u64) -> u64 {
    omnibus_core::random::nth(seed, 1)
}

/// One token for each row of `logits`, `[n, vocab]` f32 → `[n]` i32.
pub(super) fn draw(logits: &Array, rows: &[Row<'_>]) -> mlx::Result<Array> {
    let kinds: Vec<Kind> = rows.iter().map(|row| Kind::of(row.sampling)).collect();
    let mut drawn = Vec::new();
    let mut order = vec![0i32; rows.len()];
    let mut next = 0;
    for kind in [Kind::Greedy, Kind::Plain, Kind::Filtered] {
        let members: Vec<usize> = (0..rows.len()).filter(|row| kinds[*row] == kind).collect();
        if members.is_empty() {
            continue;
        }
        for row in &members {
            order[*row] = next;
            next += 1;
        }
        let all = members.len() == rows.len();
        let part = if all { logits.clone() } else { logits.take(&indices(&members)?, 0)? };
        let rows: Vec<&Row<'_>> = members.iter().map(|row| &rows[*row]).collect();
        drawn.push(match kind {
            Kind::Greedy => part.argmax(-1)?.astype(Dtype::I32)?,
            Kind::Plain => plain(&part, &rows)?,
            Kind::Filtered => filtered(&part, &rows)?,
        });
    }
    match drawn.as_slice() {
        [one] => Ok(one.clone()),
        several => {
            let several: Vec<&Array> = several.iter().collect();
            mlx::concatenate(&several, 0)?.take(&Array::from_slice(&order, &[order.len() as i32])?, 0)
        }
    }
}

/// Rows with a temperature and nothing else.
fn plain(logits: &Array, rows: &[&Row<'_>]) -> mlx::Result<Array> {
    let probabilities = (logits / column(rows, |row| row.sampling.temperature)?).softmax(-1)?;
    invert(&probabilities, rows)
}

/// Rows with filters: sorted, best first, so that every filter is a prefix.
fn filtered(logits: &Array, rows: &[&Row<'_>]) -> mlx::Result<Array> {
    let [_, vocab] = logits.dims()?;
    let order = (-logits).argsort(-1)?.astype(Dtype::I32)?;
    let sorted = logits.take_along_axis(&order, -1)?;
    let probabilities = sorted.softmax(-1)?;
    let before = probabilities.cumsum(-1)? - &probabilities;
    let best = probabilities.slice(&[0, 0], &[rows.len() as i32, 1])?;
    let rank = Array::arange(0..vocab, Dtype::I32)?;
    let ranks = column(rows, |row| match row.sampling.top_k {
        0 => vocab as f32,
        top_k => (top_k.min(vocab as usize)) as f32,
    })?;
    let kept = before
        .less(&column(rows, |row| row.sampling.top_p)?)?
        .logical_and(&probabilities.greater_equal(&(best * column(rows, |row| row.sampling.min_p)?))?)?
        .logical_and(&rank.less(&ranks.astype(Dtype::I32)?)?)?;
    let weights = (sorted / column(rows, |row| row.sampling.temperature)?).softmax(-1)?;
    let kept = mlx::where_(&kept, &weights, &Array::scalar(0.0, Dtype::F32)?)?;
    let place = invert(&kept, rows)?;
    order.take_along_axis(&place.expand_dims(&[-1])?, -1)?.squeeze(&[-1])
}

/// The first place where the cumulative weight passes the row's uniform share of the whole. `weights`
/// need not sum to one; places without weight are never drawn, bar by rounding at the very end,
/// where the heaviest place stands in.
fn invert(weights: &Array, rows: &[&Row<'_>]) -> mlx::Result<Array> {
    let [count, vocab] = weights.dims()?;
    let cumulative = weights.cumsum(-1)?;
    let total = cumulative.slice(&[0, vocab - 1], &[count, vocab])?;
    let share = total * column(rows, |row| uniform(row.seed, row.position))?;
    let place = cumulative.less_equal(&share)?.astype(Dtype::I32)?.sum(&[-1])?;
    let place = place.minimum(&Array::from_slice(&[vocab - 1], &[])?)?;
    let weight = weights.take_along_axis(&place.expand_dims(&[-1])?, -1)?.squeeze(&[-1])?;
    let heaviest = weights.argmax(-1)?.astype(Dtype::I32)?;
    mlx::where_(&weight.greater(&Array::scalar(0.0, Dtype::F32)?)?, &place, &heaviest)
}

/// One number a row, `[n, 1]` f32.
fn column(rows: &[&Row<'_>], number: impl Fn(&Row<'_>) -> f32) -> mlx::Result<Array> {
    let numbers: Vec<f32> = rows.iter().map(|row| number(row)).collect();
    Array::from_slice(&numbers, &[numbers.len() as i32, 1])
}

fn indices(rows: &[usize]) -> mlx::Result<Array> {
    let rows: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
    Array::from_slice(&rows, &[rows.len() as i32])
}
