//! Log-probabilities of sampled tokens and of the most likely ones, from the model's own logits.

use mlx::{Array, Dtype};
use omnibus_model::take_rows;

/// Log-probabilities of some rows, not yet read.
pub(crate) struct PendingLogprobs {
    /// `[n, 1]` f32
    chosen: Array,
    /// `[n, top]` i32 and f32, unsorted; `None` when not requested.
    top: Option<(Array, Array)>,
    /// `[n, most]` f32: of the tokens that rows name. Rows that name fewer are filled up. `None` when no row names any.
    named: Option<Array>,
}

/// One row's log-probabilities.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TokenScore {
    /// Log-probability of the row's token.
    pub(crate) logprob: Option<f32>,
    /// The most likely tokens, best first.
    pub(crate) top: Vec<(u32, f32)>,
    /// Log-probabilities of the tokens that the row names, in their order.
    pub(crate) named: Vec<f32>,
}

impl PendingLogprobs {
    /// `logits`: `[n, vocab]` f32; `tokens`: `[n]` i32; the `top` most likely ones besides, and those that each row names.
    pub(crate) fn new(logits: &Array, tokens: &Array, top: usize, named: &[Vec<u32>]) -> mlx::Result<Self> {
        let [rows, vocab] = logits.dims()?;
        let norm = logits.logsumexp(&[-1])?.expand_dims(&[-1])?;
        let (all, first) = (logits.reshape(&[-1])?, Array::arange(0..rows, Dtype::I32)? * vocab);
        let first = first.expand_dims(&[-1])?;
        let of = |tokens: &Array| take_rows(&all, &(tokens + &first));
        let chosen = of(&tokens.expand_dims(&[-1])?)? - &norm;
        let top = i32::try_from(top).unwrap_or(i32::MAX).min(vocab);
        let top = if top == 0 {
            None
        } else {
            let order = logits.argpartition(vocab - top, -1)?;
            let most_likely = order.slice(&[0, vocab - top], &[rows, vocab])?.astype(Dtype::I32)?;
            let scores = of(&most_likely)? - &norm;
            Some((most_likely, scores))
        };
        let named = match padded(named) {
            (_, 0) => None,
            (tokens, most) => Some(of(&Array::from_slice(&tokens, &[rows, most])?)? - &norm),
        };
        Ok(Self { chosen, top, named })
    }

    /// What must be evaluated before [`PendingLogprobs::read`].
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        let top = self.top.iter().flat_map(|(tokens, scores)| [tokens, scores]);
        std::iter::once(&self.chosen).chain(top).chain(&self.named)
    }

    /// Waits, and returns each row's log-probabilities.
    pub(crate) fn read(&self) -> mlx::Result<Vec<TokenScore>> {
        let chosen = self.chosen.to_vec::<f32>()?;
        let mut scores: Vec<TokenScore> = chosen
            .into_iter()
            .map(|logprob| TokenScore { logprob: Some(logprob), ..TokenScore::default() })
            .collect();
        if let Some((tokens, logprobs)) = &self.top {
            let width = tokens.shape().last().copied().unwrap_or(1).max(1) as usize;
            let (tokens, logprobs) = (tokens.to_vec::<i32>()?, logprobs.to_vec::<f32>()?);
            let rows = tokens.chunks(width).zip(logprobs.chunks(width));
            for (score, (tokens, logprobs)) in scores.iter_mut().zip(rows) {
                let pairs = tokens.iter().zip(logprobs).map(|(token, logprob)| (*token as u32, *logprob));
                score.top = pairs.collect();
                // Equal values are ordered by token, so that equal requests get equal lists.
                score.top.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            }
        }
        if let Some(named) = &self.named {
            let width = named.shape().last().copied().unwrap_or(1).max(1) as usize;
            for (score, logprobs) in scores.iter_mut().zip(named.to_vec::<f32>()?.chunks(width)) {
                score.named = logprobs.to_vec();
            }
        }
        Ok(scores)
    }
}

/// The tokens of all rows, each row filled up to the length of the longest, and that length.
fn padded(rows: &[Vec<u32>]) -> (Vec<i32>, i32) {
    let most = rows.iter().map(Vec::len).max().unwrap_or(0);
    let row = |row: &Vec<u32>| {
        let tokens: Vec<u32> = row.iter().copied().chain(std::iter::repeat(0)).take(most).collect();
        tokens
    };
    (rows.iter().flat_map(row).map(|token| token as i32).collect(), most as i32)
}
