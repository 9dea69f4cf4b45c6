//! Formats of reasoning in generated text.
//!
//! Start at [`REASONING_FORMATS`] and [`ReasoningFormat::of_template`].

mod formats;
mod tags;

pub use formats::REASONING_FORMATS;

use crate::syntax::{Dropped, Opening, Syntax};
use crate::tool_calls::has_sign;
use tags::Tags;

/// How models of some families mark their reasoning.
pub struct ReasoningFormat {
    /// Its name in settings.
    pub name: &'static str,
    /// The models that have it, in a few words.
    pub models: &'static str,
    /// Texts of a chat template. A template has the format if it contains all of one row.
    pub signs: &'static [&'static [&'static str]],
    /// Openings with which a prompt may end, so that the message begins inside reasoning.
    pub prompt_ends: &'static [&'static str],
    /// The text that ends reasoning: what a reasoning budget forces when it is spent.
    pub closing: &'static str,
    syntaxes: Syntaxes,
}

/// The parsers of a format's constructs.
enum Syntaxes {
    /// Reasoning between tags.
    Tagged {
        tags: Tags,
        /// Markers outside of reasoning that are not text of the answer.
        dropped: &'static [Opening],
    },
    /// Its own.
    Own(fn() -> Vec<Box<dyn Syntax>>),
}

impl ReasoningFormat {
    /// The format of a chat template: the first of the table that it shows signs of.
    pub fn of_template(source: &str) -> Option<&'static Self> {
        REASONING_FORMATS.iter().find(|format| has_sign(format.signs, source))
    }

    /// The format of a model: that of its template, or else the one that its special tokens show signs of.
    pub fn of_model<'a>(
        template: &str,
        special_tokens: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'static Self> {
        let tokens = || special_tokens.into_iter().collect::<Vec<_>>().join("\n");
        Self::of_template(template).or_else(|| Self::of_template(&tokens()))
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        REASONING_FORMATS.iter().find(|format| format.name == name)
    }

    /// The text after which the answer begins, where the model has reasoned.
    pub fn answer_opening(&self) -> &'static str {
        match self.name {
            "harmony" => "<|channel|>final<|message|>",
            "kimi-k3" => "<|open|>response<|sep|>",
            "solar" => "<|content|>",
            _ => self.closing,
        }
    }

    /// The parsers of its constructs, in the order in which they are tried.
    pub(crate) fn syntaxes(&'static self) -> Vec<Box<dyn Syntax>> {
        match &self.syntaxes {
            Syntaxes::Tagged { tags, dropped: [] } => vec![tags.syntax()],
            Syntaxes::Tagged { tags, dropped } => vec![tags.syntax(), Dropped::syntax(dropped)],
            Syntaxes::Own(make) => make(),
        }
    }

    /// Whether a message begins inside reasoning, since this prompt ends with its opening.
    pub fn begins_inside(&self, prompt: &str) -> bool {
        self.opening_at_end(prompt).is_some()
    }

    /// The opening with which the prompt ends.
    pub(crate) fn opening_at_end(&self, prompt: &str) -> Option<&'static str> {
        let prompt = prompt.trim_end();
        self.prompt_ends.iter().copied().find(|opening| prompt.ends_with(opening.trim_end()))
    }
}
