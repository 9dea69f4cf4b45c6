//! The sampling parameters that a model's publisher may recommend, and the values that requests have which leave them out.
//!
//! Invariant: names and numbers. Reading the publisher's file is in `generation_config`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A parameter that the file may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SamplingParameter {
    /// `temperature`
    Temperature,
    /// `top_p`
    TopP,
    /// `top_k`
    TopK,
    /// `min_p`
    MinP,
    /// `repetition_penalty`
    RepetitionPenalty,
    /// `presence_penalty`
    PresencePenalty,
    /// `frequency_penalty`
    FrequencyPenalty,
}

/// All of them.
pub const SAMPLING_PARAMETERS: &[SamplingParameter] = &[
    SamplingParameter::Temperature,
    SamplingParameter::TopP,
    SamplingParameter::TopK,
    SamplingParameter::MinP,
    SamplingParameter::RepetitionPenalty,
    SamplingParameter::PresencePenalty,
    SamplingParameter::FrequencyPenalty,
];

impl SamplingParameter {
    /// Its name in the file and in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::TopK => "top_k",
            Self::MinP => "min_p",
            Self::RepetitionPenalty => "repetition_penalty",
            Self::PresencePenalty => "presence_penalty",
            Self::FrequencyPenalty => "frequency_penalty",
        }
    }

    /// Its value where neither a request nor a publisher chooses one.
    pub fn default_value(self) -> f64 {
        match self {
            Self::Temperature | Self::TopP | Self::RepetitionPenalty => 1.0,
            Self::TopK | Self::MinP | Self::PresencePenalty | Self::FrequencyPenalty => 0.0,
        }
    }
}

/// The values that a model's requests have where they leave parameters out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplingDefaults {
    /// The publisher's.
    pub(crate) published: BTreeMap<SamplingParameter, f64>,
}

impl SamplingDefaults {
    /// Every parameter with its value, and whether the publisher chose it.
    pub fn values(&self) -> impl Iterator<Item = (SamplingParameter, f64, bool)> {
        SAMPLING_PARAMETERS.iter().map(|of| (*of, self.value(*of), self.published.contains_key(of)))
    }

    /// The value of one of them.
    pub fn value(&self, parameter: SamplingParameter) -> f64 {
        self.published.get(&parameter).copied().unwrap_or_else(|| parameter.default_value())
    }
}
