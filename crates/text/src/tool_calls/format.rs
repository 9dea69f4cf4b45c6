//! One row of the table of formats.

use super::schemas::ToolSchemas;
use crate::syntax::Syntax;

/// How models of some families write tool calls.
pub struct ToolCallFormat {
    /// Its name in settings.
    pub name: &'static str,
    /// The models that have it, in a few words.
    pub models: &'static str,
    /// Texts of a chat template. A template has the format if it contains all of one row.
    pub signs: &'static [&'static [&'static str]],
    /// Openings with which a prompt may end.
    pub(crate) prompt_ends: &'static [&'static str],
    /// The parsers of its constructs, in the order in which they are tried.
    pub(crate) syntaxes: fn(&ToolSchemas) -> Vec<Box<dyn Syntax>>,
}

impl ToolCallFormat {
    /// The text at the end of the prompt from which the message is read.
    pub(crate) fn opening_at_end(&self, prompt: &str) -> Option<&'static str> {
        self.prompt_ends.iter().copied().find(|opening| prompt.ends_with(opening))
    }
}

/// Whether the source contains all texts of one row.
pub(crate) fn has_sign(signs: &[&[&str]], source: &str) -> bool {
    signs.iter().any(|row| row.iter().all(|text| source.contains(text)))
}
