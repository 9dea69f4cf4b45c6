//! The variables by which chat templates switch reasoning on and off.

use serde_json::{Map, Value};

/// Names that chat templates give the switch: Qwen's and GLM's, and DeepSeek's.
const SWITCHES: &[&str] = &["enable_thinking", "thinking"];

/// Sets the variables, unless the client set them itself.
pub fn switch(enabled: Option<bool>, effort: Option<&str>, kwargs: &mut Map<String, Value>) {
    if let Some(enabled) = enabled {
        for name in SWITCHES {
            kwargs.entry(*name).or_insert(Value::Bool(enabled));
        }
    }
    if let Some(effort) = effort {
        kwargs.entry("reasoning_effort").or_insert_with(|| effort.into());
    }
}
