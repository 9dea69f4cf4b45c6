//! Sound: mono samples at one rate.
//!
//! Invariant: every sample is a finite number, and there is at least one.

use crate::error::Error;

/// Lowest and highest rate of samples that is read or made, in Hz.
pub(crate) const RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;

/// Mono samples, nominally from -1 to 1.
#[derive(Clone, PartialEq)]
pub struct Audio {
    rate: u32,
    samples: Vec<f32>,
}

impl std::fmt::Debug for Audio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Audio({} samples at {} Hz)", self.samples.len(), self.rate)
    }
}

impl Audio {
    /// Sound from samples at `rate` Hz.
    pub fn new(rate: u32, samples: Vec<f32>) -> Result<Audio, Error> {
        if samples.is_empty() {
            return Err(Error::Empty { what: "audio", missing: "samples" });
        }
        if !RATES.contains(&rate) {
            return Err(Error::unsuitable("audio", format!("its rate of {rate} Hz is out of bounds")));
        }
        if !samples.iter().all(|sample| sample.is_finite()) {
            return Err(Error::Broken {
                format: "sound",
                detail: "it has samples that are not numbers".to_owned(),
            });
        }
        Ok(Audio { rate, samples })
    }

    /// Samples per second.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// The samples.
    pub fn samples(&self) -> &[f32] {
        &self.samples
    }

    /// How long it is.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate)
    }
}
