//! Exclusion of the most likely tokens ("exclude top choices"): which rows of a step do it, as arrays.
//!
//! Invariant: whether a row excludes tokens follows from its seed and position.

use mlx::Array;

use super::SampleRow;
use super::random::{mix, uniform};
use crate::request::Sampling;

/// The rows of a batch that may exclude tokens.
pub(super) struct XtcParameters {
    rows: Vec<RowXtc>,
    /// `[n, m]` i32, −1 for none.
    kept: Array,
}

struct RowXtc {
    seed: u64,
    probability: f32,
    threshold: f32,
}

/// Whether the token at a position is one before which tokens are excluded.
pub(super) fn excludes(sampling: &Sampling, position: usize) -> bool {
    uniform(xtc_seed(sampling), position) < sampling.xtc_probability
}

/// Another number than the one that chooses the token.
fn xtc_seed(sampling: &Sampling) -> u64 {
    mix(sampling.seed.unwrap_or(0))
}

/// The rows of a step.
pub(super) struct XtcArrays<'a> {
    /// `[n]` f32; 1 for rows that exclude nothing.
    pub(super) thresholds: Array,
    /// `[n, m]` i32, −1 for none.
    pub(super) kept: &'a Array,
}

impl XtcParameters {
    /// From each row's parameters and the tokens that it never excludes. `None` if no row excludes any.
    pub(super) fn new(rows: &[(&Sampling, &[u32])]) -> mlx::Result<Option<Self>> {
        if rows.iter().all(|(sampling, _)| sampling.xtc_probability <= 0.0) {
            return Ok(None);
        }
        let most = rows.iter().map(|(_, kept)| kept.len()).max().unwrap_or(0).max(1);
        let of_row = |(_, kept): &(&Sampling, &[u32])| {
            let tokens = kept.iter().map(|token| *token as i32);
            tokens.chain(std::iter::repeat(-1)).take(most).collect::<Vec<i32>>()
        };
        let kept: Vec<i32> = rows.iter().flat_map(of_row).collect();
        let row = |(sampling, _): &(&Sampling, &[u32])| RowXtc {
            seed: xtc_seed(sampling),
            probability: sampling.xtc_probability,
            threshold: sampling.xtc_threshold,
        };
        Ok(Some(Self {
            rows: rows.iter().map(row).collect(),
            kept: Array::from_slice(&kept, &[rows.len() as i32, most as i32])?,
        }))
    }

    /// The rows of a step.
    pub(super) fn arrays(&self, rows: &[SampleRow]) -> mlx::Result<XtcArrays<'_>> {
        let threshold = |(of, row): (&RowXtc, &SampleRow)| {
            if uniform(of.seed, row.position) < of.probability { of.threshold } else { 1.0 }
        };
        let thresholds: Vec<f32> = self.rows.iter().zip(rows).map(threshold).collect();
        Ok(XtcArrays { thresholds: Array::from_slice(&thresholds, &[rows.len() as i32])?, kept: &self.kept })
    }
}
