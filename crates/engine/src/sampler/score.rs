//! Log-probabilities of the drawn tokens and of the likeliest ones, from the model's own logits.

use mlx::{Array, Dtype};

/// Scores of some rows, not yet read.
pub struct Scores {
    /// `[n, 1]` f32
    chosen: Array,
    /// `[n, top]` i32 and f32, unsorted; `None` when nobody asked.
    top: Option<(Array, Array)>,
}

/// One row's scores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Score {
    /// Log-probability of the row's token.
    pub logprob: Option<f32>,
    /// The likeliest tokens, best first.
    pub top: Vec<(u32, f32)>,
}

impl Scores {
    /// `logits`: `[n, vocab]` f32; `tokens`: `[n]` i32; the `top` likeliest besides.
    pub fn of(logits: &Array, tokens: &Array, top: usize) -> mlx::Result<Self> {
        let [rows, vocab] = logits.dims()?;
        let norm = logits.logsumexp(&[-1])?.expand_dims(&[-1])?;
        let chosen = logits.take_along_axis(&tokens.expand_dims(&[-1])?, -1)? - &norm;
        let top = (top as i32).min(vocab);
        let top = if top == 0 {
            None
        } else {
            let order = logits.argpartition(vocab - top, -1)?;
            let likeliest = order.slice(&[0, vocab - top], &[rows, vocab])?.astype(Dtype::I32)?;
            let scores = logits.take_along_axis(&likeliest, -1)? - &norm;
            Some((likeliest, scores))
        };
        Ok(Self { chosen, top })
    }

    /// What must be evaluated before [`Scores::read`].
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        let top = self.top.iter().flat_map(|(tokens, scores)| [tokens, scores]);
        std::iter::once(&self.chosen).chain(top)
    }

    /// Waits, and gives each row's scores.
    pub fn read(&self) -> mlx::Result<Vec<Score>> {
        let chosen = self.chosen.to_vec::<f32>()?;
        let mut scores: Vec<Score> =
            chosen.into_iter().map(|logprob| Score { logprob: Some(logprob), top: Vec::new() }).collect();
        if let Some((tokens, logprobs)) = &self.top {
            let width = tokens.shape().last().copied().unwrap_or(1).max(1) as usize;
            let (tokens, logprobs) = (tokens.to_vec::<i32>()?, logprobs.to_vec::<f32>()?);
            let rows = tokens.chunks(width).zip(logprobs.chunks(width));
            for (score, (tokens, logprobs)) in scores.iter_mut().zip(rows) {
                let pairs = tokens.iter().zip(logprobs).map(|(token, logprob)| (*token as u32, *logprob));
                score.top = pairs.collect();
                // Equal scores go by the token, so that equal requests print equal lists.
                score.top.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            }
        }
        Ok(scores)
    }
}
