//! From the text that a model generates to typed deltas: text, reasoning and tool calls.
//!
//! Text is read up to the first marker; there the syntax of that marker reads, and so on. What turns out to be
//! malformed before it started a call is text, from its marker on; what is malformed later cuts the call and is text
//! from there on. Text that was shown is never taken back, so only what may be the start of a marker or a call is held
//! back.
//!
//! Invariants: the deltas, with neighbours of one type joined, do not depend on how the text was split. Nothing is
//! lost but markers and whitespace beside them. No text is an error.

use crate::reasoning::ReasoningFormat;
use crate::syntax::{CallEnding, Delta, Deltas, Flow, Found, Input, Place, Stop, Syntax, find};
use crate::tool_calls::{ToolCallFormat, ToolSchemas};

/// Parses one generated message.
///
/// The text must hold the special tokens that are markers of the formats, and no token that ends the message.
pub struct OutputParser {
    input: Input,
    out: Deltas,
    syntaxes: Vec<Box<dyn Syntax>>,
    /// The text of every opening, with the index of its syntax.
    openings: Vec<(&'static str, Place, usize)>,
    active: Option<usize>,
    /// Bytes of the input that are an opening of the prompt, and so no text, until a syntax has read them.
    from_prompt: usize,
}

impl OutputParser {
    /// A parser of a message. `prompt` is the rendered prompt, whose end shows whether the message begins inside
    /// reasoning. Without a format, what it would parse is text.
    pub fn new(
        prompt: &str,
        reasoning: Option<&'static ReasoningFormat>,
        tools: Option<(&ToolCallFormat, &ToolSchemas)>,
    ) -> Self {
        let mut syntaxes = reasoning.map(ReasoningFormat::syntaxes).unwrap_or_default();
        if let Some((format, schemas)) = tools {
            syntaxes.extend((format.syntaxes)(schemas));
        }
        let openings = syntaxes.iter().enumerate().flat_map(|(index, syntax)| {
            syntax.openings().iter().map(move |opening| (opening.text, opening.place, index))
        });
        let openings = openings.collect();
        let mut parser = Self {
            input: Input::default(),
            out: Deltas::new(),
            syntaxes,
            openings,
            active: None,
            from_prompt: 0,
        };
        let of_reasoning = reasoning.and_then(|format| format.opening_at_end(prompt));
        let of_tools = tools.and_then(|(format, _)| format.opening_at_end(prompt));
        if let Some(opening) = of_reasoning.or(of_tools) {
            // The opening is in the prompt, and is read from there.
            parser.input.push(opening);
            parser.from_prompt = opening.len();
            parser.advance();
        }
        parser
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.input.push(text);
        self.advance();
        self.out.take()
    }

    /// The deltas of what is still held back, at the end of the message.
    pub fn finish(&mut self) -> Vec<Delta> {
        self.input.end();
        self.advance();
        self.out.finish();
        self.out.take()
    }

    /// Whether the text so far ends inside reasoning.
    pub fn in_reasoning(&self) -> bool {
        self.active.and_then(|index| self.syntaxes.get(index)).is_some_and(|syntax| syntax.is_reasoning())
    }

    /// Whether the text so far ends inside a tool call that has started.
    pub fn in_tool_call(&self) -> bool {
        self.out.in_call()
    }

    fn advance(&mut self) {
        loop {
            let is_waiting = match self.active {
                None => !self.find_opening(),
                Some(index) => !self.step(index),
            };
            if is_waiting {
                return;
            }
        }
    }

    /// Shows text up to the next opening. Whether there is one.
    fn find_opening(&mut self) -> bool {
        let Self { input, out, openings, .. } = self;
        let texts: Vec<&str> = openings.iter().map(|(text, ..)| *text).collect();
        let rest = input.rest();
        let counts = |at: usize, index: usize| {
            let before = rest.get(..at).unwrap_or_default();
            openings.get(index).is_some_and(|(_, place, _)| is_at(*place, out, before))
        };
        let found = find(rest, input.has_ended(), &texts, counts);
        let (Found::At(at, _) | Found::Before(at)) = found;
        out.text(input.consume(at));
        let Found::At(_, opening) = found else { return false };
        self.input.open();
        self.activate(opening);
        true
    }

    /// Lets the syntax of this opening read.
    fn activate(&mut self, opening: usize) {
        self.active = self.openings.get(opening).map(|(_, _, syntax)| *syntax);
        if let Some(syntax) = self.active.and_then(|index| self.syntaxes.get_mut(index)) {
            syntax.begin();
        }
    }

    /// One step of a syntax. Whether there is more to do.
    fn step(&mut self, index: usize) -> bool {
        let Some(syntax) = self.syntaxes.get_mut(index) else { return false };
        match syntax.step(&mut self.input, &mut self.out) {
            Ok(Flow::Continue) => true,
            Ok(Flow::Done) => {
                assert!(self.input.has_advanced(), "a syntax that is complete has read its opening");
                self.input.commit();
                self.active = None;
                self.from_prompt = 0;
                true
            }
            Err(Stop::More) if !self.input.has_ended() && !self.input.is_full() => false,
            Err(Stop::More | Stop::No) => {
                self.abandon(index);
                true
            }
        }
    }

    /// The syntax does not fit what is there: the next one of the same opening reads, or it is text.
    fn abandon(&mut self, index: usize) {
        self.active = None;
        if self.out.in_call() {
            self.out.end_call(CallEnding::Cut);
        }
        if self.input.is_committed() {
            self.from_prompt = 0;
            let held = self.syntaxes.get_mut(index).map(|syntax| syntax.take_held());
            self.out.text(&held.unwrap_or_default());
            return;
        }
        self.input.rewind();
        let rest = self.input.rest();
        let mut others = self.openings.iter().enumerate();
        let other = others.find(|(_, (text, place, syntax))| {
            *syntax > index && rest.starts_with(text) && is_at(*place, &self.out, "")
        });
        if let Some((opening, _)) = other {
            self.input.open();
            self.activate(opening);
            return;
        }
        if self.from_prompt > 0 {
            self.input.consume(std::mem::take(&mut self.from_prompt));
            return;
        }
        let first = rest.chars().next().map_or(0, char::len_utf8);
        self.out.text(self.input.consume(first));
    }
}

/// Whether a syntax may start after what was written and the text before it.
fn is_at(place: Place, out: &Deltas, before: &str) -> bool {
    match place {
        Place::Anywhere => true,
        Place::LineStart if before.is_empty() => out.at_line_start(),
        Place::LineStart => before.ends_with('\n'),
        Place::MessageStart => out.is_blank() && before.trim().is_empty(),
    }
}
