//! What a client's grammar may cost.

use serde::{Deserialize, Serialize};

/// What a client's grammar may cost. The defaults allow schemas of hundreds of kilobytes, and keep one request from
/// slowing the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrammarLimits {
    /// Most bytes of its text.
    pub bytes: usize,
    /// Deepest nesting of its text: objects and lists of a schema, brackets of an expression.
    pub depth: usize,
    /// Most states of its lexer, over all requests that share it. A state takes one to two kilobytes.
    pub states: usize,
    /// Most milliseconds until it is compiled.
    pub compile_ms: u64,
    /// Compiled grammars that are kept for later requests.
    pub cached: usize,
}

impl Default for GrammarLimits {
    fn default() -> Self {
        Self { bytes: 256 << 10, depth: 64, states: 50_000, compile_ms: 2_000, cached: 64 }
    }
}
