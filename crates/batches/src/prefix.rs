//! What two requests may have in common: the begin of their prompts.

use serde_json::Value;

/// The fields of a prompt in the order in which it shows them.
const FIELDS: [&str; 9] =
    ["model", "tools", "system", "instructions", "prompt", "input", "query", "text_1", "messages"];

/// Most bytes that are compared.
const PREFIX_BYTES: usize = 2048;

/// The begin of a request's prompt.
pub fn prefix(body: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in FIELDS.iter().filter_map(|name| body.get(*name)) {
        bytes.extend_from_slice(value.to_string().as_bytes());
        if bytes.len() >= PREFIX_BYTES {
            bytes.truncate(PREFIX_BYTES);
            break;
        }
    }
    bytes
}
