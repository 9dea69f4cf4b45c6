//! The probabilities of given answers, and what is said of them.
//!
//! Source: TypeSafe's formulas of confidence.

/// The probabilities of the answers to one question, in their order; they sum to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Probabilities {
    values: Vec<f64>,
    mass: f64,
}

impl Probabilities {
    /// Of the logarithms of what the model gives each answer. Equal ones where it gives none of them anything.
    pub fn of(logprobs: &[f64]) -> Self {
        let largest = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weight = |logprob: &f64| match largest.is_finite() {
            true => (logprob - largest).exp(),
            false => 1.0,
        };
        let weights: Vec<f64> = logprobs.iter().map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let mass = logprobs.iter().map(|logprob| logprob.exp()).sum::<f64>().clamp(0.0, 1.0);
        Self { values: weights.into_iter().map(|weight| weight / sum).collect(), mass }
    }

    /// In the order of the answers.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// What the model gives all of them together.
    pub fn mass(&self) -> f64 {
        self.mass
    }

    /// The first answer's.
    pub fn first(&self) -> f64 {
        self.values.first().copied().unwrap_or_default()
    }

    /// The most likely answer; the first of equal ones.
    pub fn best(&self) -> usize {
        let better = |best: usize, (at, value): (usize, &f64)| match self.values.get(best) {
            Some(other) if other >= value => best,
            _ => at,
        };
        self.values.iter().enumerate().fold(0, better)
    }

    /// How far the most likely option is from chance: `(p − 1/n) / (1 − 1/n)`.
    pub fn choice_confidence(&self) -> f64 {
        let chance = 1.0 / self.values.len().max(1) as f64;
        let best = self.values.get(self.best()).copied().unwrap_or(1.0);
        if chance < 1.0 { ((best - chance) / (1.0 - chance)).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// The mean of the levels' numbers.
    pub fn score(&self) -> f64 {
        self.values.iter().enumerate().map(|(level, value)| level as f64 * value).sum()
    }

    /// How near the levels are to the most likely one: `1 − Σ pᵢ|i − k| / D`, with the mean distance `D` of equally likely
    /// levels from their middle.
    pub fn score_confidence(&self) -> f64 {
        let (count, best) = (self.values.len() as f64, self.best() as f64);
        let distance = |to: f64| move |level: usize| (level as f64 - to).abs();
        let uniform = (0..self.values.len()).map(distance((count - 1.0) / 2.0)).sum::<f64>() / count;
        let spread: f64 =
            self.values.iter().enumerate().map(|(level, value)| value * distance(best)(level)).sum();
        if uniform > 0.0 { (1.0 - spread / uniform).clamp(0.0, 1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 6e-4, "{found} is not {expected}");
    }

    /// Numbers computed by hand from TypeSafe's formulas.
    #[test]
    fn the_worked_example() {
        let choice = Probabilities::of(&[-1.1, -2.3, -4.0]);
        near(choice.mass(), 0.451);
        for (found, expected) in choice.values().iter().zip([0.737, 0.222, 0.041]) {
            near(*found, expected);
        }
        near(choice.choice_confidence(), 0.606);
        near(Probabilities::of(&[-0.25, -1.9]).first(), 0.839);
        let score = Probabilities::of(&[0.05f64.ln(), 0.25f64.ln(), 0.7f64.ln()]);
        near(score.score(), 1.65);
        near(score.score_confidence(), 0.475);
        assert_eq!((choice.best(), score.best()), (0, 2));
    }

    #[test]
    fn one_answer_is_certain_and_equal_ones_are_not() {
        let one = Probabilities::of(&[-3.0]);
        assert_eq!((one.values(), one.choice_confidence(), one.score_confidence()), (&[1.0][..], 1.0, 1.0));
        let equal = Probabilities::of(&[-2.0, -2.0]);
        assert_eq!((equal.best(), equal.choice_confidence()), (0, 0.0));
        let impossible = Probabilities::of(&[f64::NEG_INFINITY; 4]);
        assert_eq!((impossible.values(), impossible.mass()), (&[0.25; 4][..], 0.0));
        let tiny = Probabilities::of(&[-900.0, -901.0]);
        near(tiny.first(), 0.731);
    }
}
