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

    /// An error at a place in a schema, which is a JSON pointer. The path is that of the place as errors of an API have it.
    pub(crate) fn in_schema(pointer: &str, message: impl std::fmt::Display) -> Self {
        let mut path = String::new();
        let mut lists = false;
        for name in pointer.split('/').skip(1) {
            let name = name.replace("~1", "/").replace("~0", "~");
            let is_index = lists && name.chars().all(|char| char.is_ascii_digit());
            let separator = if path.is_empty() { "" } else { "." };
            path += &if is_index { format!("[{name}]") } else { format!("{separator}{name}") };
            lists = matches!(name.as_str(), "anyOf" | "oneOf" | "allOf" | "items" | "prefixItems");
        }
        let place =
            if pointer.is_empty() { "the root of the schema".to_owned() } else { format!("`{pointer}`") };
        Self::at(path, format!("at {place}: {message}"))
    }

    /// An error of llguidance about a schema, in words of the schema. `place`: the pointer of a definition's name.
    pub(crate) fn of_schema(error: &impl std::fmt::Display, place: impl Fn(&str) -> Option<String>) -> Self {
        let Self { message, .. } = Self::of_engine(error);
        let (what, definition) = match message.split_once("#/$defs/") {
            Some((what, name)) => (what.trim_end_matches(" while processing ").to_owned(), name),
            None => (message.clone(), ""),
        };
        let pointer = place(definition).unwrap_or_default();
        let has = |words: &[&str]| words.iter().any(|word| what.contains(word));
        let why = if let Some((_, reason)) = what.split_once("Unsatisfiable schema: ") {
            format!("no value matches it: {reason}")
        } else if has(&["circular references"]) {
            "what it refers to contains it, beside keywords that limit it; write it without the reference"
                .to_owned()
        } else if has(&["too large", "too big", "too many", "Too many", "stack level", "limit"]) {
            "it is too large: a value has too many alternatives, or expressions are too complex".to_owned()
        } else {
            what
        };
        Self::in_schema(&pointer, why)
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
