//! What the distance of a row and a key adds to their score, as data, and its tensors.

use crate::manifest::{Scope, TensorRole};
use crate::norm::Norm;
use crate::rules::Broken;

/// What the distance of a row and a key adds to their score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistanceScores {
    /// What is added.
    pub term: DistanceTerm,
    /// Which distances share it.
    pub buckets: DistanceBuckets,
}

/// What is added to the score of a row and a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DistanceTerm {
    /// A learned number of each head for each bucket, `distance_bias` (MPNet).
    Bias,
    /// Products of the row's query and of the key with embeddings of buckets, `distance_embeddings`, which are normed and
    /// projected as keys and as queries are (DeBERTa). Source: arXiv 2006.03654 §3.1.
    Products {
        /// Of the embeddings.
        norm: Norm,
    },
}

/// Which distances share a bucket: near ones have their own, far ones share one with those of about the same logarithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DistanceBuckets {
    /// The first half of `count` is of keys before the row, the second half of those behind it. Source: arXiv 1910.10683 §2.1.
    Halves {
        /// Of both sides.
        count: usize,
        /// Distances from this on share the last bucket of a side.
        longest: usize,
    },
    /// `side` buckets before the row's own, and `side − 1` behind it. Source: arXiv 2006.03654, as DeBERTa-v2 has it.
    Centred {
        /// Of each side.
        side: usize,
        /// Distances from this on share the last bucket of a side.
        longest: usize,
    },
}

impl DistanceBuckets {
    /// How many there are.
    pub fn count(self) -> usize {
        match self {
            Self::Halves { count, .. } => count,
            Self::Centred { side, .. } => 2 * side,
        }
    }

    /// Distances further than this one have its bucket.
    pub(super) fn longest(self) -> usize {
        match self {
            Self::Halves { longest, .. } | Self::Centred { longest, .. } => longest,
        }
    }

    /// The bucket of a distance: the row's position less the key's. In float32, as both references have it.
    pub(super) fn of(self, distance: i32) -> i32 {
        match self {
            Self::Halves { count, longest } => halves(distance, count as i32 / 2, longest as f64),
            Self::Centred { side, longest } => {
                let side = side as i32;
                (centred(distance, side, longest as f32) + side).clamp(0, 2 * side - 1)
            }
        }
    }

    fn check_rules(self, broken: &mut Broken) {
        let (near, longest, is_whole) = match self {
            Self::Halves { count, longest } => (count / 4, longest, count.is_multiple_of(4)),
            Self::Centred { side, longest } => (side / 2, longest, side.is_multiple_of(2)),
        };
        broken.check(near > 0 && is_whole && longest <= 1 << 20 && near + 1 < longest, || {
            format!("{} buckets of distances up to {longest} are several of each side", self.count())
        });
    }
}

impl DistanceScores {
    /// Whether the projections of queries and keys are of distances, too.
    pub(super) fn projects(self) -> bool {
        matches!(self.term, DistanceTerm::Products { .. })
    }

    pub(super) fn check_rules(self, broken: &mut Broken) {
        self.buckets.check_rules(broken);
    }

    pub(super) fn name_tensors(self, heads: usize, at: &mut Scope) {
        let (buckets, hidden) = (self.buckets.count(), at.hidden);
        match self.term {
            DistanceTerm::Bias => at.tensor("distance_bias", &[heads, buckets], TensorRole::Heads),
            DistanceTerm::Products { norm } => {
                let mut table = at.at("distance_embeddings");
                table.tensor("weight", &[buckets, hidden], TensorRole::Replicated);
                at.norm("distance_norm", norm, hidden);
            }
        }
    }
}

/// Source: transformers `models/mpnet/modeling_mpnet.py`, `relative_position_bucket`.
fn halves(distance: i32, side: i32, longest: f64) -> i32 {
    let (near, first) = (side / 2, if distance < 0 { side } else { 0 });
    let far = distance.saturating_abs();
    if far < near {
        return first + far;
    }
    let logarithm = (far as f32 / near as f32).ln() / (longest / f64::from(near)).ln() as f32;
    first + (near + (logarithm * (side - near) as f32) as i32).min(side - 1)
}

/// Source: transformers `models/deberta_v2/modeling_deberta_v2.py`, `make_log_bucket_position`.
fn centred(distance: i32, side: i32, longest: f32) -> i32 {
    let near = side / 2;
    let far = distance.saturating_abs();
    if far <= near {
        return distance;
    }
    let logarithm = (far as f32 / near as f32).ln() / ((longest - 1.0) / near as f32).ln();
    ((logarithm * (near - 1) as f32).ceil() as i32 + near) * distance.signum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of both functions in transformers 5.24.
    #[test]
    fn near_distances_have_buckets_of_their_own() {
        let halves = DistanceBuckets::Halves { count: 32, longest: 128 };
        let of = [0, 1, -1, 7, 8, -8, 11, 12, 16, 64, 127, 128, 1000, -1000];
        assert_eq!(of.map(|far| halves.of(far)), [0, 1, 17, 7, 8, 24, 8, 9, 10, 14, 15, 15, 15, 31]);
        let centred = DistanceBuckets::Centred { side: 16, longest: 48 };
        let of = [0, 1, -1, 8, 9, -9, 10, 20, 46, 47, 100, -100];
        assert_eq!(of.map(|far| centred.of(far)), [16, 17, 15, 24, 25, 7, 25, 28, 31, 31, 31, 0]);
    }
}
