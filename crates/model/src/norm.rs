//! Norms, as data.

/// A normalisation over the last axis.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Norm {
    /// `x / √(mean(x²) + eps) · weight`. Gemma stores `weight − 1`; a rewrite adds it back.
    Rms { eps: f32 },
    /// `x / √(mean(x²) + eps)`: an RMS norm without a weight.
    RmsUnweighted { eps: f32 },
    /// `(x − mean(x)) / √(variance(x) + eps) · weight`, and `+ bias` if it has one.
    Layer { eps: f32, bias: bool },
    /// `(x − mean(x)) / √(variance(x) + eps)`: a layer norm without weight and bias.
    LayerUnweighted { eps: f32 },
    /// The unweighted one of `x · weight` (Muse Spark).
    ScaledRms { eps: f32 },
    /// No norm: `x · weight` with one learned number (Talkie).
    Gain,
    /// No norm: `x` as it is, behind layers that end with a norm of their own (BERT).
    Absent,
}

impl Norm {
    /// Added to the mean square or the variance.
    pub fn eps(self) -> f32 {
        match self {
            Self::Rms { eps }
            | Self::RmsUnweighted { eps }
            | Self::ScaledRms { eps }
            | Self::Layer { eps, .. }
            | Self::LayerUnweighted { eps } => eps,
            Self::Gain | Self::Absent => 0.0,
        }
    }
}
