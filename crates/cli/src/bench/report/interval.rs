//! A mean with its 95 % confidence interval, from one value of each round.

use serde::{Deserialize, Serialize};

/// A mean, and half the width of its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean of the rounds.
    pub mean: f64,
    /// Half of the interval; `None` of one round, which says nothing about others.
    pub half: Option<f64>,
}

/// The 97.5th percentile of Student's t by degrees of freedom from 1 on; more have that of the normal distribution.
const T: &[f64] = &[12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

impl Interval {
    /// The interval of the mean of these values; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let half = (values.len() > 1).then(|| {
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            let t = T.get(values.len() - 2).copied().unwrap_or(1.96);
            t * (variance / count).sqrt()
        });
        Some(Self { mean, half })
    }

    /// How `self` compares with `other`: the ratio of the means, and the ends of its interval, by the sum of the relative
    /// variances. `None` where one is zero.
    pub fn ratio(self, other: Self) -> Option<(f64, f64, f64)> {
        if self.mean <= 0.0 || other.mean <= 0.0 {
            return None;
        }
        let relative = |of: Self| of.half.unwrap_or_default() / of.mean;
        let ratio = self.mean / other.mean;
        let width = relative(self).hypot(relative(other)).exp();
        Some((ratio, ratio / width, ratio * width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_students_t() {
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[3.0]), Some(Interval { mean: 3.0, half: None }));
        let Interval { mean, half } = Interval::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(mean, 2.0);
        assert!((half.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn a_ratio_has_the_interval_of_both() {
        let (ratio, low, high) =
            Interval { mean: 20.0, half: Some(3.0) }.ratio(Interval { mean: 10.0, half: Some(2.0) }).unwrap();
        assert_eq!(ratio, 2.0);
        assert!((high / ratio - 0.25f64.exp()).abs() < 1e-9 && (ratio / low - 0.25f64.exp()).abs() < 1e-9);
        let zero = Interval { mean: 0.0, half: None };
        assert!(zero.ratio(zero).is_none());
    }
}
