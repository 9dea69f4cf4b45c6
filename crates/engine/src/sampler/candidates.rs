//! The tokens of one row that may still be sampled, and the samplers that cut or temper them.
//!
//! Each sampler sees what those before it left; probabilities are of that. The definitions are in
//! docs/api.md, as the table of `samplers`.
//!
//! Invariant: plain numbers of one row. Ties go to the lower token.

/// Tokens with their logits, ascending by token, none of them −∞.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidates(Vec<(u32, f32)>);

impl Candidates {
    /// The tokens of a row that are not excluded.
    pub(super) fn of(logits: &[f32]) -> Self {
        let tokens = (0_u32..).zip(logits.iter().copied());
        Self(tokens.filter(|(_, logit)| *logit != f32::NEG_INFINITY).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the row: −∞ for tokens that were excluded.
    pub(super) fn write(&self, logits: &mut [f32]) {
        logits.fill(f32::NEG_INFINITY);
        for (token, logit) in &self.0 {
            if let Some(place) = logits.get_mut(*token as usize) {
                *place = *logit;
            }
        }
    }

    /// Changes the logit of a token, if it is left.
    pub(super) fn change(&mut self, token: u32, change: impl FnOnce(f32) -> f32) {
        if let Ok(place) = self.0.binary_search_by_key(&token, |(token, _)| *token)
            && let Some((_, logit)) = self.0.get_mut(place)
        {
            *logit = change(*logit);
        }
    }

    /// Divides the logits by a temperature; 0 leaves the most likely token alone.
    pub(super) fn temper(&mut self, temperature: f32) {
        if temperature > 0.0 {
            // Relative to the largest, so that no temperature makes them infinite.
            let most = self.largest();
            self.0.iter_mut().for_each(|(_, logit)| *logit = (*logit - most) / temperature);
        } else {
            self.top_k(1);
        }
    }

    /// The temperature between `low` and `high` by the entropy of what is left, and its power. `None`: one token is left.
    pub(super) fn dynamic_temperature(&self, (low, high): (f32, f32), exponent: f32) -> Option<f32> {
        if self.0.len() < 2 {
            return None;
        }
        let share = entropy(&self.probabilities()) / (self.0.len() as f64).ln();
        Some(low + (high - low) * share.clamp(0.0, 1.0).powf(f64::from(exponent)) as f32)
    }

    /// Keeps logits of at least the largest one less so many standard deviations.
    pub(super) fn top_n_sigma(&mut self, sigmas: f32) {
        let count = self.0.len() as f64;
        let mean = self.0.iter().map(|(_, logit)| f64::from(*logit)).sum::<f64>() / count;
        let squares = self.0.iter().map(|(_, logit)| (f64::from(*logit) - mean).powi(2)).sum::<f64>();
        let least = f64::from(self.largest()) - f64::from(sigmas) * (squares / count).sqrt();
        self.0.retain(|(_, logit)| f64::from(*logit) >= least);
    }

    /// Keeps the tokens whose −ln p is nearest to the entropy, until their probabilities exceed `typical_p`.
    pub(super) fn typical_p(&mut self, typical_p: f32) {
        let probabilities = self.probabilities();
        let entropy = entropy(&probabilities);
        let distance = |p: f64| if p > 0.0 { (-p.ln() - entropy).abs() } else { f64::INFINITY };
        let mut ranked: Vec<(f64, usize)> =
            probabilities.iter().enumerate().map(|(place, p)| (distance(*p), place)).collect();
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut sum = 0.0;
        let kept = ranked.iter().take_while(|(_, place)| {
            let before = sum;
            sum += probabilities.get(*place).copied().unwrap_or_default();
            before <= f64::from(typical_p)
        });
        let kept: Vec<usize> = kept.map(|(_, place)| *place).collect();
        self.keep(&kept);
    }

    /// Keeps tokens of at least this fraction of the largest probability.
    pub(super) fn min_p(&mut self, min_p: f32) {
        let most = self.largest();
        // In f32, as the kernels compare.
        self.0.retain(|(_, logit)| (*logit - most).exp() >= min_p);
    }

    /// Keeps the `k` most likely tokens.
    pub(super) fn top_k(&mut self, k: usize) {
        if k < self.0.len() {
            let ranked = self.ranked();
            self.keep(ranked.get(..k).unwrap_or(&ranked));
        }
    }

    /// Keeps the most likely tokens until their probabilities reach `top_p`.
    pub(super) fn top_p(&mut self, top_p: f32) {
        let (ranked, probabilities) = (self.ranked(), self.probabilities());
        let mut sum = 0.0;
        let kept = ranked.iter().take_while(|place| {
            let before = sum;
            sum += probabilities.get(**place).copied().unwrap_or_default();
            before < f64::from(top_p)
        });
        let kept: Vec<usize> = kept.copied().collect();
        self.keep(&kept);
    }

    /// Excludes the tokens above a probability but the least likely of them, and but those that stay.
    pub(super) fn without_top(&mut self, threshold: f32, stay: &[u32]) {
        let probabilities = self.probabilities();
        let above = probabilities.iter().copied().filter(|p| *p > f64::from(threshold));
        let least = above.fold(f64::INFINITY, f64::min);
        let mut probability = probabilities.iter();
        self.0.retain(|(token, _)| probability.next().is_none_or(|p| *p <= least) || stay.contains(token));
    }

    fn largest(&self) -> f32 {
        self.0.iter().map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max)
    }

    /// Each token's probability among those that are left.
    fn probabilities(&self) -> Vec<f64> {
        let most = self.largest();
        let weights: Vec<f64> = self.0.iter().map(|(_, logit)| f64::from(*logit - most).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    }

    /// Places, most likely first.
    fn ranked(&self) -> Vec<usize> {
        let mut ranked: Vec<(f32, usize)> =
            self.0.iter().enumerate().map(|(place, (_, logit))| (*logit, place)).collect();
        ranked.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        ranked.into_iter().map(|(_, place)| place).collect()
    }

    /// Keeps the tokens at these places.
    fn keep(&mut self, places: &[usize]) {
        let mut kept: Vec<usize> = places.to_vec();
        kept.sort_unstable();
        self.0 = kept.into_iter().filter_map(|place| self.0.get(place).copied()).collect();
    }
}

fn entropy(probabilities: &[f64]) -> f64 {
    probabilities.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probabilities 0.1, 0.4, 0.05, 0.3, 0.15 of the tokens 0 to 4.
    fn likely() -> Candidates {
        Candidates(
            [0.1_f32, 0.4, 0.05, 0.3, 0.15].map(f32::ln).into_iter().zip(0..).map(|(l, t)| (t, l)).collect(),
        )
    }

    #[track_caller]
    fn check(cut: impl FnOnce(&mut Candidates), want: &[u32]) {
        let mut candidates = likely();
        cut(&mut candidates);
        assert_eq!(candidates.0.iter().map(|(token, _)| *token).collect::<Vec<u32>>(), want);
    }

    #[test]
    fn top_n_sigma_keeps_logits_near_the_largest() {
        // ln: -2.303, -0.916, -2.996, -1.204, -1.897. Mean -1.863, deviation 0.749.
        check(|left| left.top_n_sigma(0.3), &[1]);
        check(|left| left.top_n_sigma(0.5), &[1, 3]);
        check(|left| left.top_n_sigma(1.4), &[1, 3, 4]);
        check(|left| left.top_n_sigma(2.8), &[0, 1, 2, 3, 4]);
    }

    #[test]
    fn typical_p_keeps_tokens_near_the_entropy_and_may_drop_the_most_likely() {
        // Entropy 1.392. Distances: 0.910, 0.476, 1.603, 0.188, 0.505: the order is 3, 1, 4, 0, 2.
        check(|left| left.typical_p(0.2), &[3]);
        check(|left| left.typical_p(0.31), &[1, 3]);
        check(|left| left.typical_p(0.71), &[1, 3, 4]);
        check(|left| left.typical_p(0.9), &[0, 1, 3, 4]);
    }

    #[test]
    fn the_common_filters_keep_what_their_names_say() {
        check(|left| left.min_p(0.3), &[1, 3, 4]);
        check(|left| left.top_k(2), &[1, 3]);
        check(|left| left.top_k(9), &[0, 1, 2, 3, 4]);
        check(|left| left.top_p(0.69), &[1, 3]);
        check(|left| left.top_p(0.75), &[1, 3, 4]);
        check(|left| left.temper(0.0), &[1]);
    }

    #[test]
    fn the_top_is_excluded_but_the_least_likely_of_it_and_what_stays() {
        check(|left| left.without_top(0.12, &[]), &[0, 2, 4]);
        check(|left| left.without_top(0.12, &[1]), &[0, 1, 2, 4]);
        check(|left| left.without_top(0.5, &[]), &[0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_temperature_moves_with_the_entropy() {
        let of = |logits: &[f32], exponent| Candidates::of(logits).dynamic_temperature((0.5, 1.5), exponent);
        assert_eq!(of(&[1.0; 8], 1.0), Some(1.5), "all tokens are equally likely");
        let sure = of(&[80.0, 0.0, 0.0], 1.0).unwrap();
        assert!((sure - 0.5).abs() < 1e-6, "{sure}");
        // Entropy 1.39232 of ln 5 = 1.60944: a share of 0.86510, of which the square is 0.74839.
        let near = |found: Option<f32>, want: f32| assert!((found.unwrap() - want).abs() < 1e-4, "{found:?}");
        near(likely().dynamic_temperature((0.5, 1.5), 1.0), 1.36510);
        near(likely().dynamic_temperature((0.5, 1.5), 2.0), 1.24839);
        assert_eq!(of(&[3.0], 1.0), None);
    }

    #[test]
    fn excluded_tokens_are_no_candidates_and_are_written_back() {
        let mut row = [0.5, f32::NEG_INFINITY, 2.0, 1.0];
        let mut candidates = Candidates::of(&row);
        candidates.change(1, |_| 9.0);
        candidates.change(3, |logit| logit - 3.0);
        candidates.top_k(2);
        candidates.write(&mut row);
        assert_eq!(row, [0.5, f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY]);
    }
}
