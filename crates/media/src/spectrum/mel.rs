//! Triangular filters that are equally wide on the mel scale.

/// How hertz become mel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// Logarithmic throughout.
    Htk,
    /// Linear up to 1 kHz, and filters of equal area.
    Slaney,
}

const SLANEY_HERTZ: f64 = 1000.0;
const SLANEY_MEL: f64 = 15.0;

impl Scale {
    fn mel(self, hertz: f64) -> f64 {
        match self {
            Scale::Htk => 2595.0 * (1.0 + hertz / 700.0).log10(),
            Scale::Slaney if hertz >= SLANEY_HERTZ => {
                SLANEY_MEL + (hertz / SLANEY_HERTZ).ln() * (27.0 / 6.4f64.ln())
            }
            Scale::Slaney => 3.0 * hertz / 200.0,
        }
    }

    fn hertz(self, mel: f64) -> f64 {
        match self {
            Scale::Htk => 700.0 * (10f64.powf(mel / 2595.0) - 1.0),
            Scale::Slaney if mel >= SLANEY_MEL => {
                SLANEY_HERTZ * (6.4f64.ln() / 27.0 * (mel - SLANEY_MEL)).exp()
            }
            Scale::Slaney => 200.0 * mel / 3.0,
        }
    }
}

/// Filters over the bins of a spectrum.
pub(super) struct MelFilters {
    /// For each filter, the first bin and a weight for it and each that follows.
    filters: Vec<(usize, Vec<f64>)>,
}

impl MelFilters {
    /// `count` filters from `low` to `high` hertz over `bins` bins from 0 to half of `rate`.
    pub fn new(scale: Scale, count: usize, (low, high): (f64, f64), bins: usize, rate: f64) -> MelFilters {
        let (from, to) = (scale.mel(low), scale.mel(high));
        let step = (to - from) / (count + 1) as f64;
        let edge =
            |index: usize| scale.hertz(if index == count + 1 { to } else { from + step * index as f64 });
        let edges: Vec<f64> = (0..count + 2).map(edge).collect();
        let bin = rate / 2.0 / (bins - 1) as f64;
        let filter = |edges: &[f64]| {
            let &[low, centre, high] = edges else { return (0, Vec::new()) };
            let area = if scale == Scale::Slaney { 2.0 / (high - low) } else { 1.0 };
            let weight = |index: usize| {
                let hertz = bin * index as f64;
                let (up, down) = ((hertz - low) / (centre - low), (high - hertz) / (high - centre));
                up.min(down).max(0.0) * area
            };
            let weights: Vec<f64> = (0..bins).map(weight).collect();
            let first = weights.iter().position(|weight| *weight > 0.0).unwrap_or(0);
            let end = weights.iter().rposition(|weight| *weight > 0.0).map_or(first, |last| last + 1);
            (first, weights.get(first..end).unwrap_or_default().to_vec())
        };
        MelFilters { filters: edges.windows(3).map(filter).collect() }
    }

    /// What each filter lets through.
    pub fn apply(&self, spectrum: &[f64]) -> impl Iterator<Item = f64> {
        self.filters.iter().map(|(first, weights)| {
            let bins = spectrum.get(*first..).unwrap_or_default();
            weights.iter().zip(bins).map(|(weight, bin)| weight * bin).sum()
        })
    }
}
