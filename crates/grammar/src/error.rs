//! Why a grammar is refused.

/// Longest message, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// Why a grammar is refused, or a sequence's output cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GrammarError {
    /// Where in the grammar, as `properties.name.format`; empty for all of it.
    pub path: String,
    /// What is wrong, in one line.
    pub message: String,
}

impl GrammarError {
    /// An error at a place in the grammar.
    pub(crate) fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// An error of llguidance: the first line that says something, without the parser's state after it.
    pub(crate) fn of_engine(error: &impl std::fmt::Display) -> Self {
        let text = error.to_string();
        let text = text.split("<state>").next().unwrap_or_default();
        let text = text.split("<backtrace>").next().unwrap_or_default();
        let text = text.split("<non-verbose/>").next().unwrap_or_default();
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self::at("", line.chars().take(MESSAGE_CHARS_MAX).collect::<String>())
    }
}
