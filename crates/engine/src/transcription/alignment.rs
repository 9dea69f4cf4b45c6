//! When the tokens of a window are spoken, by what they attend to in its sound.
//!
//! Source: openai/whisper `timing.py`. Weights of the heads that follow the sound are made comparable, smoothed and averaged;
//! the cheapest monotonic path through tokens and frames says where each token begins (Sakoe, Chiba: Dynamic programming
//! algorithm optimization for spoken word recognition, 1978).

use std::ops::Range;

use crate::alignment::AlignedTokens;

/// Frames on each side of the median that smooths weights.
const MEDIAN_REACH: usize = 3;
const SMOOTHED: usize = 2 * MEDIAN_REACH + 1;

/// Weights of all tokens of a prompt, as they arrive.
pub(super) struct HeadWeights {
    heads: usize,
    frames: usize,
    /// Of each token, `[heads, frames]`.
    tokens: Vec<Option<Vec<f32>>>,
}

impl HeadWeights {
    /// Of at least one frame.
    pub(super) fn new(heads: usize, tokens: usize, frames: usize) -> Self {
        Self { heads, frames, tokens: vec![None; tokens] }
    }

    /// Adds those of some tokens. Ones that came before are replaced.
    pub(super) fn add(&mut self, aligned: &AlignedTokens) {
        let of_token = self.heads * self.frames;
        let count = aligned.weights.len().checked_div(of_token).unwrap_or(0);
        let placed = self.tokens.iter_mut().skip(aligned.first).take(count);
        for (at, token) in placed.enumerate() {
            let of_heads = aligned.weights.chunks_exact(count * self.frames);
            let rows = of_heads.filter_map(|head| head.chunks_exact(self.frames).nth(at));
            *token = Some(rows.flatten().copied().collect());
        }
    }

    /// Where each of the tokens begins, in frames; `None` if weights are missing.
    pub(super) fn first_frames(&self, tokens: Range<usize>) -> Option<Vec<usize>> {
        let rows: Vec<&[f32]> = self.tokens.iter().map(Option::as_deref).collect::<Option<_>>()?;
        let mut sums = vec![vec![0f32; self.frames]; rows.len()];
        for head in 0..self.heads {
            let of_head = |row: &&[f32]| Some(row.chunks_exact(self.frames).nth(head)?.to_vec());
            let mut weights: Vec<Vec<f32>> = rows.iter().map(of_head).collect::<Option<_>>()?;
            standardize(&mut weights);
            for (sums, row) in sums.iter_mut().zip(&weights) {
                sums.iter_mut().zip(smoothed(row)).for_each(|(sum, weight)| *sum += weight);
            }
        }
        let costs = sums.get(tokens)?.iter().map(|row| row.iter().map(|sum| -sum).collect());
        Some(cheapest_path(&costs.collect::<Vec<Vec<f32>>>()))
    }
}

/// Subtracts from each frame's weights their mean over the tokens, and divides them by their standard deviation.
fn standardize(rows: &mut [Vec<f32>]) {
    let (count, frames) = (rows.len() as f32, rows.first().map_or(0, Vec::len));
    let mut means = vec![0f32; frames];
    for row in &*rows {
        means.iter_mut().zip(row).for_each(|(mean, weight)| *mean += weight / count);
    }
    let mut variances = vec![0f32; frames];
    for row in &*rows {
        let of_frames = variances.iter_mut().zip(row).zip(&means);
        of_frames.for_each(|((variance, weight), mean)| *variance += (weight - mean).powi(2) / count);
    }
    for row in rows {
        for ((weight, mean), variance) in row.iter_mut().zip(&means).zip(&variances) {
            // A frame that all tokens see alike says nothing.
            *weight = if *variance > 0.0 { (*weight - mean) / variance.sqrt() } else { 0.0 };
        }
    }
}

/// The median of each element and its neighbours; the ends are mirrored.
fn smoothed(row: &[f32]) -> Vec<f32> {
    if row.len() <= MEDIAN_REACH {
        return row.to_vec();
    }
    let mirrored = (1..=MEDIAN_REACH).rev().chain(0..row.len());
    let mirrored = mirrored.chain((row.len() - 1 - MEDIAN_REACH..row.len() - 1).rev());
    let padded: Vec<f32> = mirrored.filter_map(|at| row.get(at).copied()).collect();
    padded.windows(SMOOTHED).filter_map(|window| window.try_into().ok().map(median)).collect()
}

fn median(mut window: [f32; SMOOTHED]) -> f32 {
    window.sort_unstable_by(f32::total_cmp);
    window[MEDIAN_REACH]
}

/// Where a path comes from.
#[derive(Clone, Copy)]
enum Step {
    /// The token before and the frame before.
    Both,
    Token,
    Frame,
}

/// The first frame of each token on the cheapest path from the first token and frame to the last ones, along which
/// neither goes back.
fn cheapest_path(costs: &[Vec<f32>]) -> Vec<usize> {
    let frames = costs.first().map_or(0, Vec::len);
    // In front of the first token there is only the start.
    let mut above: Vec<f32> = std::iter::once(0.0).chain(vec![f32::INFINITY; frames]).collect();
    let mut steps: Vec<Vec<Step>> = Vec::with_capacity(costs.len());
    for row in costs {
        let (mut before, mut totals) = (f32::INFINITY, vec![f32::INFINITY]);
        let mut of_row = Vec::with_capacity(frames);
        for (cost, from) in row.iter().zip(above.windows(2)) {
            let &[both, token] = from else { continue };
            let (step, cheapest) = if before <= both && before <= token {
                (Step::Frame, before)
            } else if both <= token {
                (Step::Both, both)
            } else {
                (Step::Token, token)
            };
            before = cost + cheapest;
            totals.push(before);
            of_row.push(step);
        }
        above = totals;
        steps.push(of_row);
    }
    let mut firsts = vec![0; costs.len()];
    let (mut token, mut frame) = (costs.len(), frames);
    while token > 0 && frame > 0 {
        if let Some(first) = firsts.get_mut(token - 1) {
            *first = frame - 1;
        }
        match steps.get(token - 1).and_then(|row| row.get(frame - 1)) {
            Some(Step::Both) => (token, frame) = (token - 1, frame - 1),
            Some(Step::Token) => token -= 1,
            Some(Step::Frame) | None => frame -= 1,
        }
    }
    firsts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of a path that is given by the first frame of each token.
    fn total(costs: &[Vec<f32>], firsts: &[usize]) -> f32 {
        let ends = firsts.iter().skip(1).copied().chain([costs[0].len()]);
        let of_token = |(row, (first, end)): (&Vec<f32>, (&usize, usize))| {
            row[*first..end.max(first + 1)].iter().sum::<f32>()
        };
        costs.iter().zip(firsts.iter().zip(ends)).map(of_token).sum()
    }

    /// The least cost of any path, by trying all.
    fn least(costs: &[Vec<f32>], token: usize, frame: usize) -> f32 {
        let here = costs[token][frame];
        let mut from = Vec::new();
        if token > 0 && frame > 0 {
            from.push(least(costs, token - 1, frame - 1));
        }
        if token > 0 {
            from.push(least(costs, token - 1, frame));
        }
        if frame > 0 {
            from.push(least(costs, token, frame - 1));
        }
        here + from.into_iter().reduce(f32::min).unwrap_or(0.0)
    }

    proptest! {
        #[test]
        fn no_path_is_cheaper(
            costs in (1..5usize, 1..6usize).prop_flat_map(|(tokens, frames)| {
                // Small ones, so that many paths cost the same.
                prop::collection::vec(prop::collection::vec(0..4i32, frames), tokens)
            })
        ) {
            let costs: Vec<Vec<f32>> =
                costs.iter().map(|row| row.iter().map(|cost| *cost as f32).collect()).collect();
            let firsts = cheapest_path(&costs);
            prop_assert!(firsts.is_sorted());
            let least = least(&costs, costs.len() - 1, costs[0].len() - 1);
            prop_assert_eq!(total(&costs, &firsts), least);
        }
    }

    #[test]
    fn tokens_are_found_where_heads_see_them() {
        let (tokens, frames) = (4, 40);
        let mut weights = HeadWeights::new(2, tokens, frames);
        let of_head = |sharp: f32| {
            let seen = move |token: usize, frame: usize| if frame / 10 == token { sharp } else { 1.0 };
            (0..tokens).flat_map(move |token| (0..frames).map(move |frame| seen(token, frame)))
        };
        assert_eq!(weights.first_frames(0..tokens), None);
        let all: Vec<f32> = of_head(5.0).chain(of_head(9.0)).collect();
        weights.add(&AlignedTokens { first: 0, weights: all.clone() });
        assert_eq!(weights.first_frames(0..tokens), Some(vec![0, 10, 20, 30]));
        // In two parts, the last one again.
        let mut parts = HeadWeights::new(2, tokens, frames);
        let part = |from: usize, to: usize| AlignedTokens {
            first: from,
            weights: all
                .chunks(tokens * frames)
                .flat_map(|head| head[from * frames..to * frames].to_vec())
                .collect(),
        };
        for (from, to) in [(0, 3), (3, 4), (3, 4)] {
            parts.add(&part(from, to));
        }
        assert_eq!(parts.first_frames(0..tokens), Some(vec![0, 10, 20, 30]));
    }

    /// The reference's weights of a text beside a sound, and where it finds its tokens.
    #[test]
    fn tokens_begin_where_the_reference_finds_them() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/speech/whisper/golden.safetensors");
        let golden = mlx::io::load_safetensors(std::path::Path::new(golden)).unwrap();
        for case in ["plain", "continued", "start"] {
            let seen = &golden[&format!("weights.{case}")];
            let [heads, tokens, frames] = seen.dims().unwrap().map(|size| size as usize);
            let mut weights = HeadWeights::new(heads, tokens, frames);
            weights.add(&AlignedTokens { first: 0, weights: seen.to_vec().unwrap() });
            let expected: Vec<i32> = golden[&format!("text_frames.{case}")].to_vec().unwrap();
            // Behind the start, the language and the task; before the end.
            let found = weights.first_frames(3..tokens - 1).unwrap();
            assert_eq!(found.iter().map(|frame| *frame as i32).collect::<Vec<_>>(), expected, "{case}");
        }
    }

    #[test]
    fn a_median_of_seven_mirrors_the_ends() {
        assert_eq!(smoothed(&[1.0, 9.0, 2.0, 8.0, 3.0]), [8.0, 3.0, 8.0, 3.0, 8.0]);
        assert_eq!(smoothed(&[1.0, 2.0]), [1.0, 2.0]);
    }
}
