//! What parsers of generated text are made of: input that arrives in pieces, markers, and the deltas that come out.
//!
//! A [`Syntax`] is one construct of a format: a tool call, a block of reasoning. It starts at one of its openings and
//! reads the input step by step. [`crate::OutputParser`] chooses which syntax reads.
//!
//! Invariants: a decision depends on the text alone, never on where it was split: a step that cannot decide yet returns
//! [`Stop::More`] and has consumed nothing. No syntax panics on any text.

mod deltas;
mod dropped;
mod input;
mod json_copy;
mod markers;
mod peek;

pub(crate) use deltas::Deltas;
pub use deltas::{CallEnding, Delta};
pub(crate) use dropped::Dropped;
pub(crate) use input::Input;
pub(crate) use json_copy::{JsonCopy, Quotes, push_escaped, push_json_string};
pub(crate) use markers::{Found, find};
pub(crate) use peek::Peek;

/// Why a step did not advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The text so far does not decide it.
    More,
    /// The text is not of this syntax.
    No,
}

/// What follows a step that advanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// This syntax reads on.
    Continue,
    /// It is complete.
    Done,
}

/// A marker at which a syntax may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opening {
    pub text: &'static str,
    pub place: Place,
}

/// Where an opening counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Anywhere,
    /// Behind a line break, or at the start of the message.
    LineStart,
    /// Before any text of the message.
    MessageStart,
}

impl Opening {
    pub const fn anywhere(text: &'static str) -> Self {
        Self { text, place: Place::Anywhere }
    }

    pub const fn line_start(text: &'static str) -> Self {
        Self { text, place: Place::LineStart }
    }

    pub const fn message_start(text: &'static str) -> Self {
        Self { text, place: Place::MessageStart }
    }
}

/// One construct of a format.
pub(crate) trait Syntax: Send {
    /// Where it may start. Its text is still in the input when the first step runs.
    fn openings(&self) -> &'static [Opening];

    /// Prepares for reading from an opening.
    fn begin(&mut self);

    /// Reads on. With [`Stop::No`] before [`Input::commit`], what was read since the opening is text.
    ///
    /// # Errors
    ///
    /// When it cannot advance; see [`Stop`].
    fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop>;

    /// Whether what comes next is reasoning.
    fn is_reasoning(&self) -> bool {
        false
    }

    /// Text that was consumed and that no delta shows, when a call is cut.
    fn take_held(&mut self) -> String {
        String::new()
    }
}
