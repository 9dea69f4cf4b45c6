//! The samplers that `samplers` orders
//!
//! Their order here is that of requests without one. Biases and grammars come before all of them. Each sees what those
//! before it left.

use omnibus_engine::{SAMPLERS, SamplerKind};
use serde_json::Value;

use super::fields::{Field, Fields, honoured, type_error};
use crate::error::ApiError;

/// The names, and what each sampler does.
pub const NOTES: &[Field] = &[
    honoured(
        "penalties",
        "divides positive and multiplies negative logits by `repetition_penalty`, then subtracts `presence_penalty` and `frequency_penalty` × count",
    ),
    honoured(
        "dry",
        "subtracts `dry_multiplier` × `dry_base`^(n − `dry_allowed_length`) from the logit of a token that would be the next of a repetition of n ≥ `dry_allowed_length` tokens: n is the longest end of the last `dry_penalty_last_n` tokens, back to the last breaker, that stands there once more, before that token; a token that contains a breaker is never penalized",
    ),
    honoured(
        "top_n_sigma",
        "keeps logits of at least the largest one − `top_n_sigma` × the standard deviation of all that are left (also `top_nsigma`)",
    ),
    honoured(
        "temperature",
        "divides logits by `temperature`; with `dynatemp_range` r > 0 by low + (high − low) × (entropy / ln of the number of tokens left)^`dynatemp_exponent`, low and high being `temperature` ∓ r, low at least 0; 0 leaves the most likely token alone (also `temp`, `dynamic_temperature`)",
    ),
    honoured(
        "typ_p",
        "keeps tokens by how near −ln of their probability is to the entropy, nearest first, until their probabilities exceed `typical_p` (also `typical_p`, `typical`)",
    ),
    honoured("min_p", "keeps tokens of at least `min_p` × the probability of the most likely one"),
    honoured("top_k", "keeps the `top_k` most likely tokens"),
    honoured(
        "top_p",
        "keeps the most likely tokens until their probabilities reach `top_p` of what is left (also `nucleus`)",
    ),
    honoured(
        "xtc",
        "with `xtc_probability`, excludes all tokens above `xtc_threshold` of what is left but the least likely of these",
    ),
];

/// Reads a list of their names. Fails at the first that there is not.
pub fn read(fields: &mut Fields) -> Result<Vec<SamplerKind>, ApiError> {
    let named = |(index, value): (usize, Value)| {
        let at = format!("samplers[{index}]");
        let Value::String(name) = value else { return Err(type_error(&at, "a string", &value)) };
        SamplerKind::named(&name).ok_or_else(|| {
            let known: Vec<&str> = SAMPLERS.iter().map(|row| row.name).collect();
            let message = format!("`{at}`: there is no sampler `{name}`; there are {}", known.join(", "));
            ApiError::invalid("samplers", message)
        })
    };
    fields.list("samplers")?.unwrap_or_default().into_iter().enumerate().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_have_every_sampler_in_its_place() {
        let names = |fields: &[Field]| fields.iter().map(|field| field.name).collect::<Vec<_>>();
        assert_eq!(names(NOTES), SAMPLERS.iter().map(|row| row.name).collect::<Vec<_>>());
        for (note, row) in NOTES.iter().zip(SAMPLERS) {
            assert!(
                row.aliases.iter().all(|alias| note.note.contains(&format!("`{alias}`"))),
                "{}",
                row.name
            );
        }
    }
}
