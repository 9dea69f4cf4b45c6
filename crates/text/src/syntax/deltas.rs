//! The typed parts of a generated message, as they are found.
//!
//! Whitespace at a border between text, reasoning and calls belongs to the format and is dropped; elsewhere it is
//! kept. So whitespace is held back until what follows it is known.

use serde::{Deserialize, Serialize};

/// A typed part of a generated message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Text of the answer.
    Text(String),
    /// Reasoning before or between the parts of the answer.
    Reasoning(String),
    /// A tool call starts. Its arguments and its end follow before any other delta.
    ToolCallStart {
        /// The id, where the format has one and it precedes the arguments.
        id: Option<String>,
        /// The function.
        name: String,
    },
    /// The next part of the arguments. All parts of a complete call, joined, are one JSON object without whitespace
    /// between its tokens.
    ToolCallArguments(String),
    /// The tool call ends.
    ToolCallEnd(CallEnding),
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallEnding {
    /// Its arguments are a JSON object.
    Complete,
    /// The text ended, or was malformed, inside the call. The arguments are the start of a JSON object and stay as
    /// they are, since completing them could change what is executed. What follows is text.
    Cut,
}

/// Whose text was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Call,
}

/// Whether whitespace that comes next is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    Keep,
    Drop,
}

/// Collects deltas and joins neighbours of one type.
#[derive(Debug)]
pub(crate) struct Deltas {
    list: Vec<Delta>,
    kind: Kind,
    lead: Lead,
    /// Whitespace after the text or reasoning written last.
    held: String,
    in_call: bool,
    /// No text but whitespace was written.
    is_blank: bool,
    /// The last byte of the text was a line break.
    at_line_start: bool,
}

impl Deltas {
    pub fn new() -> Self {
        Self {
            list: Vec::new(),
            kind: Kind::Text,
            lead: Lead::Keep,
            held: String::new(),
            in_call: false,
            is_blank: true,
            at_line_start: true,
        }
    }

    /// The deltas since the last call.
    pub fn take(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.list)
    }

    pub fn is_blank(&self) -> bool {
        self.is_blank
    }

    pub fn at_line_start(&self) -> bool {
        self.at_line_start
    }

    pub fn in_call(&self) -> bool {
        self.in_call
    }

    pub fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let shown = self.border(Kind::Text, text);
        self.is_blank &= text.trim().is_empty();
        self.at_line_start = text.ends_with('\n');
        if !shown.is_empty() {
            self.push(Delta::Text(shown));
        }
    }

    pub fn reasoning(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let shown = self.border(Kind::Reasoning, text);
        if !shown.is_empty() {
            self.push(Delta::Reasoning(shown));
        }
    }

    /// Whitespace up to the next text is dropped, as after the end of reasoning.
    pub fn drop_whitespace(&mut self) {
        self.held.clear();
        self.lead = Lead::Drop;
        self.at_line_start = true;
    }

    pub fn start_call(&mut self, id: Option<String>, name: String) {
        assert!(!self.in_call, "calls do not nest");
        self.in_call = true;
        self.drop_whitespace();
        self.kind = Kind::Call;
        self.push(Delta::ToolCallStart { id, name });
    }

    pub fn arguments(&mut self, json: &str) {
        if !json.is_empty() {
            self.push(Delta::ToolCallArguments(json.to_owned()));
        }
    }

    pub fn end_call(&mut self, ending: CallEnding) {
        assert!(self.in_call, "a call that ends has started");
        self.in_call = false;
        self.push(Delta::ToolCallEnd(ending));
    }

    /// Whitespace at the end of the message is text.
    pub fn finish(&mut self) {
        let held = std::mem::take(&mut self.held);
        if self.kind == Kind::Text && !held.is_empty() {
            self.push(Delta::Text(held));
        }
    }

    /// What of `text` can be shown: not whitespace at a border.
    fn border(&mut self, kind: Kind, text: &str) -> String {
        if self.kind != kind {
            self.drop_whitespace();
            self.kind = kind;
        }
        let text = if self.lead == Lead::Drop { text.trim_start() } else { text };
        if text.is_empty() {
            return String::new();
        }
        self.lead = Lead::Keep;
        let body = text.trim_end();
        let mut shown = String::new();
        if !body.is_empty() {
            shown = std::mem::take(&mut self.held);
            shown.push_str(body);
        }
        self.held.push_str(text.strip_prefix(body).unwrap_or_default());
        shown
    }

    fn push(&mut self, delta: Delta) {
        match (self.list.last_mut(), &delta) {
            (Some(Delta::Text(last)), Delta::Text(text))
            | (Some(Delta::Reasoning(last)), Delta::Reasoning(text))
            | (Some(Delta::ToolCallArguments(last)), Delta::ToolCallArguments(text)) => last.push_str(text),
            _ => self.list.push(delta),
        }
    }
}
