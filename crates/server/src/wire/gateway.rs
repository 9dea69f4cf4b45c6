//! Fields that gateways and the clients of other servers always send: one value of each is what happens here anyway.

use super::fields::{Field, Fields, harmless, honoured};
use crate::error::ApiError;

/// Fields that gateways and the clients of other servers always send.
pub const FIELDS: &[Field] = &[
    honoured("no_stop_trim", "SGLang's name of `include_stop_str_in_output`"),
    honoured("skip_special_tokens", "only true: special tokens are no part of the text"),
    harmless("spaces_between_special_tokens", "special tokens are no part of the text"),
    honoured("separate_reasoning", "only true: reasoning has a field of its own"),
    honoured("stream_reasoning", "only true: reasoning is streamed as it comes"),
    honoured("return_hidden_states", "only false"),
];

/// The only value of a field, and why.
struct Fixed {
    name: &'static str,
    value: bool,
    why: &'static str,
}

const FIXED: &[Fixed] = &[
    Fixed { name: "skip_special_tokens", value: true, why: "special tokens are no part of the text" },
    Fixed { name: "separate_reasoning", value: true, why: "reasoning has a field of its own" },
    Fixed { name: "stream_reasoning", value: true, why: "reasoning is streamed as it comes" },
    Fixed { name: "return_hidden_states", value: false, why: "hidden states are not returned" },
];

/// Takes the fields of which one value is supported. Fails on the other one.
pub fn check(fields: &mut Fields) -> Result<(), ApiError> {
    for Fixed { name, value, why } in FIXED {
        if fields.flag(name)?.is_some_and(|sent| sent != *value) {
            return Err(ApiError::unsupported(*name, format!("`{name}` must be {value}: {why}")));
        }
    }
    Ok(())
}
