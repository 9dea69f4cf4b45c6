//! How tokens are sampled: the parameters, their names and their limits.
//!
//! Invariant: plain values. What they do to logits is in `sampler`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LOGIT_BIAS_MAX, STOP_STRING_BYTES_MAX, STOP_STRINGS_MAX, check};
use crate::error::Failure;

/// How tokens are sampled. Logits processors and biases come first, then the samplers in the order of [`SAMPLERS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 always takes the most likely token.
    pub temperature: f32,
    /// How far the temperature moves around its value with the entropy of the distribution; 0 is not at all.
    pub dynatemp_range: f32,
    /// The power of the entropy, as a share of the largest possible one, that moves it.
    pub dynatemp_exponent: f32,
    /// Keep the `k` most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set whose probabilities reach this; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this fraction as probable as the most probable one; 0 keeps all.
    pub min_p: f32,
    /// Keep tokens whose logits are within so many standard deviations of the largest one; 0 and below keep all.
    pub top_n_sigma: f32,
    /// Keep the smallest set of tokens nearest to the entropy whose probabilities exceed this; 1 keeps all.
    pub typical_p: f32,
    /// How often the most probable tokens are excluded; 0 is never.
    pub xtc_probability: f32,
    /// Then, of the tokens above this probability all but the least probable one are. End tokens and line breaks stay.
    pub xtc_threshold: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 changes nothing.
    pub repetition_penalty: f32,
    /// How many recent tokens, prompt included, the repetition penalty applies to.
    pub repetition_context: usize,
    /// Subtracted once from the logit of every token generated so far.
    pub presence_penalty: f32,
    /// Subtracted for each time a token was generated.
    pub frequency_penalty: f32,
    /// The penalty of tokens that would continue a repetition.
    pub dry: Dry,
    /// Which samplers there are, in this order, without those that are not named. Empty is the order of [`SAMPLERS`].
    pub order: Vec<SamplerKind>,
    /// Added to the logits of these tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// What is never generated.
    pub bad_words: BadWords,
    /// A seed always gives one text, whatever else runs. `None` chooses a fresh seed.
    pub seed: Option<u64>,
    /// Names of [`LogitsProcessors`](crate::LogitsProcessors), which change the logits first, in this order.
    pub processors: Vec<String>,
}

/// Sequences of tokens that are never generated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadWords {
    /// Words, whose tokens with and without a space before them are meant. Other tokens may spell them.
    pub texts: Vec<String>,
    /// The sequences of the texts, once the model is known.
    pub(crate) tokens: Vec<Vec<u32>>,
}

impl BadWords {
    /// Words, without their tokens.
    pub fn of(texts: Vec<String>) -> Self {
        Self { texts, tokens: Vec::new() }
    }

    fn validate(&self) -> Result<(), Failure> {
        check(self.texts.len() <= STOP_STRINGS_MAX, "bad_words", "must have at most 64 entries")?;
        let named = self.texts.iter().all(|text| !text.trim().is_empty());
        check(named, "bad_words", "must not contain an empty string")?;
        let short = self.texts.iter().all(|text| text.len() <= STOP_STRING_BYTES_MAX);
        check(short, "bad_words", "entries must be at most 1024 bytes")
    }
}

/// The penalty of tokens that would continue a repetition ("don't repeat yourself"): `multiplier` × `base`^(n −
/// `allowed_length`) is subtracted from the logit of a token that would be the next of a repetition of n tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dry {
    /// 0 is no penalty.
    pub multiplier: f32,
    /// At least 1.
    pub base: f32,
    /// Shorter repetitions have no penalty.
    pub allowed_length: usize,
    /// How many of the last tokens, prompt included, are searched for repetitions.
    pub context: usize,
    /// Texts that no repetition contains.
    pub breakers: Vec<String>,
}

/// One of the samplers that a request may put in an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SamplerKind {
    /// The repetition, presence and frequency penalties.
    Penalties,
    /// [`Dry`].
    Dry,
    /// `top_n_sigma`.
    TopNSigma,
    /// The temperature, dynamic or not.
    Temperature,
    /// `typical_p`.
    TypicalP,
    /// `min_p`.
    MinP,
    /// `top_k`.
    TopK,
    /// `top_p`.
    TopP,
    /// The exclusion of the most probable tokens.
    Xtc,
}

/// A sampler as requests name it.
#[derive(Debug, Clone, Copy)]
pub struct SamplerName {
    /// Which one.
    pub kind: SamplerKind,
    /// Its name in `samplers`.
    pub name: &'static str,
    /// Other servers' names of it.
    pub aliases: &'static [&'static str],
}

/// All samplers, in the order in which a request without one has them. What each does, exactly, is in docs/api.md.
pub const SAMPLERS: &[SamplerName] = &[
    SamplerName { kind: SamplerKind::Penalties, name: "penalties", aliases: &[] },
    SamplerName { kind: SamplerKind::Dry, name: "dry", aliases: &[] },
    SamplerName { kind: SamplerKind::TopNSigma, name: "top_n_sigma", aliases: &["top_nsigma"] },
    SamplerName {
        kind: SamplerKind::Temperature,
        name: "temperature",
        aliases: &["temp", "dynamic_temperature"],
    },
    SamplerName { kind: SamplerKind::TypicalP, name: "typ_p", aliases: &["typical_p", "typical"] },
    SamplerName { kind: SamplerKind::MinP, name: "min_p", aliases: &[] },
    SamplerName { kind: SamplerKind::TopK, name: "top_k", aliases: &[] },
    SamplerName { kind: SamplerKind::TopP, name: "top_p", aliases: &["nucleus"] },
    SamplerName { kind: SamplerKind::Xtc, name: "xtc", aliases: &[] },
];

impl SamplerKind {
    /// The sampler with a name, its own or an alias.
    pub fn named(name: &str) -> Option<Self> {
        let found = SAMPLERS.iter().find(|row| row.name == name || row.aliases.contains(&name));
        found.map(|row| row.kind)
    }
}

/// Most texts of [`Dry::breakers`].
const DRY_BREAKERS_MAX: usize = 64;
/// Longest of them, in bytes.
const DRY_BREAKER_BYTES_MAX: usize = 40;

impl Default for Dry {
    fn default() -> Self {
        Self {
            multiplier: 0.0,
            base: 1.75,
            allowed_length: 2,
            context: usize::MAX,
            breakers: ["\n", ":", "\"", "*"].map(str::to_owned).into(),
        }
    }
}

impl Dry {
    /// Whether any token may have a penalty.
    pub(crate) fn is_on(&self) -> bool {
        self.multiplier > 0.0 && self.context > 0
    }

    fn validate(&self) -> Result<(), Failure> {
        let multiplier = (0.0..=100.0).contains(&self.multiplier);
        check(multiplier, "dry_multiplier", "must be between 0 and 100")?;
        check((1.0..=100.0).contains(&self.base), "dry_base", "must be between 1 and 100")?;
        let field = "dry_sequence_breakers";
        check(self.breakers.len() <= DRY_BREAKERS_MAX, field, "must have at most 64 entries")?;
        check(self.breakers.iter().all(|text| !text.is_empty()), field, "must not contain an empty string")?;
        let short = self.breakers.iter().all(|text| text.len() <= DRY_BREAKER_BYTES_MAX);
        check(short, field, "entries must be at most 40 bytes")
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            top_n_sigma: 0.0,
            typical_p: 1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repetition_penalty: 1.0,
            repetition_context: 20,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry: Dry::default(),
            order: Vec::new(),
            logit_bias: BTreeMap::new(),
            bad_words: BadWords::default(),
            seed: None,
            processors: Vec::new(),
        }
    }
}

impl Sampling {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether the kernels' own samplers in their own order are all that it needs.
    pub(crate) fn is_plain(&self) -> bool {
        let default = SAMPLERS.iter().map(|row| &row.kind);
        if self.dry.is_on() || !(self.order.is_empty() || self.order.iter().eq(default)) {
            return false;
        }
        let greedy = self.temperature == 0.0 && self.dynatemp_range == 0.0;
        greedy || (self.top_n_sigma <= 0.0 && self.typical_p >= 1.0 && self.dynatemp_range == 0.0)
    }

    /// Fails with the first invalid field.
    pub(crate) fn validate(&self) -> Result<(), Failure> {
        let within = |value: f32, low: f32, high: f32| (low..=high).contains(&value);
        check(within(self.temperature, 0.0, 100.0), "temperature", "must be between 0 and 100")?;
        check(within(self.dynatemp_range, 0.0, 100.0), "dynatemp_range", "must be between 0 and 100")?;
        check(within(self.dynatemp_exponent, 0.0, 100.0), "dynatemp_exponent", "must be between 0 and 100")?;
        check(self.top_p > 0.0 && self.top_p <= 1.0, "top_p", "must be above 0 and at most 1")?;
        check(within(self.min_p, 0.0, 1.0), "min_p", "must be between 0 and 1")?;
        check(within(self.top_n_sigma, -1.0, 100.0), "top_n_sigma", "must be between -1 and 100")?;
        let typical = self.typical_p > 0.0 && self.typical_p <= 1.0;
        check(typical, "typical_p", "must be above 0 and at most 1")?;
        check(within(self.xtc_probability, 0.0, 1.0), "xtc_probability", "must be between 0 and 1")?;
        check(within(self.xtc_threshold, 0.0, 0.5), "xtc_threshold", "must be between 0 and 0.5")?;
        self.dry.validate()?;
        let repetition = self.repetition_penalty > 0.0 && self.repetition_penalty <= 100.0;
        check(repetition, "repetition_penalty", "must be above 0 and at most 100")?;
        check(self.repetition_context <= 1 << 20, "repetition_context_size", "must be at most 1048576")?;
        check(within(self.presence_penalty, -2.0, 2.0), "presence_penalty", "must be between -2 and 2")?;
        check(within(self.frequency_penalty, -2.0, 2.0), "frequency_penalty", "must be between -2 and 2")?;
        self.validate_lists()
    }

    fn validate_lists(&self) -> Result<(), Failure> {
        let twice = |(at, sampler): (usize, &SamplerKind)| {
            self.order.iter().skip(at + 1).any(|other| other == sampler)
        };
        let once = !self.order.iter().enumerate().any(twice);
        check(once, "samplers", "must name a sampler once")?;
        self.bad_words.validate()?;
        check(self.logit_bias.len() <= LOGIT_BIAS_MAX, "logit_bias", "must have at most 1024 entries")?;
        let bias = self.logit_bias.values().all(|bias| (-100.0..=100.0).contains(bias));
        check(bias, "logit_bias", "values must be between -100 and 100")
    }
}
