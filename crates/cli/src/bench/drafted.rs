//! Streams with draft tokens of which chance accepts some, beside the same streams without.

use omnibus_offline::bench::Decode;
use serde::Serialize;

use super::case::Case;

/// A measurement with draft tokens.
#[derive(Debug, Serialize)]
pub struct DraftedCase {
    /// Percent of the draft tokens that are accepted at each position.
    pub synthetic_acceptance: Vec<u8>,
    /// The measurement.
    pub decode: Case<Decode>,
    /// Tokens per second over those without draft tokens, by the means of the steps.
    pub speed_ratio: Option<f64>,
}

impl DraftedCase {
    /// `base`: the same streams without.
    pub fn of(acceptance: &[u8], base: &Case<Decode>, decode: Case<Decode>) -> Self {
        let speed_ratio = match (base, &decode) {
            (Case::Measured { measured: base, .. }, Case::Measured { measured, .. }) => {
                Some(measured.tokens_per_s / base.tokens_per_s.max(f64::MIN_POSITIVE))
            }
            _ => None,
        };
        Self { synthetic_acceptance: acceptance.to_vec(), decode, speed_ratio }
    }

    /// A row of the table.
    pub fn row(&self) -> String {
        let percent: Vec<String> = self.synthetic_acceptance.iter().map(u8::to_string).collect();
        let found = match (&self.decode, self.speed_ratio) {
            (Case::Measured { measured, .. }, Some(ratio)) => {
                format!(": {:.2} tokens a step, {ratio:.2} of the speed without", measured.tokens_per_step)
            }
            _ => String::new(),
        };
        self.decode.row_of(&format!(", {} % of drafts accepted{found}", percent.join(" ")))
    }
}
