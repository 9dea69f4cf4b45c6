//! Tokens that answers took, by the names of every API.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Tokens of some answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of all prompts.
    pub input_tokens: u64,
    /// Of these, those that were cached.
    pub cached_tokens: u64,
    /// Generated ones.
    pub output_tokens: u64,
    /// Of these, those of reasoning.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// What the body of an answer says.
    pub fn of_body(body: &Value) -> Self {
        let usage = body.get("usage");
        let count = |names: &[&str]| {
            let found = usage.and_then(|usage| names.iter().find_map(|name| usage.pointer(name)?.as_u64()));
            found.unwrap_or(0)
        };
        let cached = count(&[
            "/prompt_tokens_details/cached_tokens",
            "/input_tokens_details/cached_tokens",
            "/cache_read_input_tokens",
        ]);
        // Anthropic counts cached tokens apart.
        let apart = usage.map_or(0, |usage| {
            let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
            count("cache_read_input_tokens") + count("cache_creation_input_tokens")
        });
        Self {
            input_tokens: count(&["/prompt_tokens", "/input_tokens"]) + apart,
            cached_tokens: cached,
            output_tokens: count(&["/completion_tokens", "/output_tokens"]),
            reasoning_tokens: count(&[
                "/completion_tokens_details/reasoning_tokens",
                "/output_tokens_details/reasoning_tokens",
            ]),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let Self { input_tokens, cached_tokens, output_tokens, reasoning_tokens } = other;
        self.input_tokens += input_tokens;
        self.cached_tokens += cached_tokens;
        self.output_tokens += output_tokens;
        self.reasoning_tokens += reasoning_tokens;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_api_names_its_tokens() {
        let expected = Usage { input_tokens: 9, cached_tokens: 4, output_tokens: 2, reasoning_tokens: 0 };
        for usage in [
            json!({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}),
            json!({"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}),
            json!({"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 4}),
        ] {
            assert_eq!(Usage::of_body(&json!({"usage": usage})), expected);
        }
        assert_eq!(Usage::of_body(&json!("no object")), Usage::default());
    }
}
