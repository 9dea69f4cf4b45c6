//! Parsing of generated text under every split, and its deltas as lines.

#![allow(dead_code, reason = "each test uses a part")]

use omnibus_text::{CallEnding, Delta, OutputParser, ReasoningFormat, ToolCallFormat, ToolSchemas};

/// A parser's settings.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub prompt: &'a str,
    pub reasoning: Option<&'static ReasoningFormat>,
    pub tools: Option<(&'static ToolCallFormat, &'a ToolSchemas)>,
}

impl Setup<'_> {
    /// The deltas of text in these pieces, with neighbours of one type joined.
    pub fn parse<'t>(&self, pieces: impl IntoIterator<Item = &'t str>) -> Vec<Delta> {
        let mut parser = OutputParser::new(self.prompt, self.reasoning, self.tools);
        let mut deltas = Vec::new();
        for piece in pieces {
            deltas.extend(parser.push(piece));
        }
        deltas.extend(parser.finish());
        joined(deltas)
    }

    /// The deltas of the text, which are the same for every split in two, and char by char.
    pub fn parse_every_split(&self, text: &str) -> Vec<Delta> {
        let whole = self.parse([text]);
        for (at, _) in text.char_indices().skip(1) {
            let (a, b) = text.split_at(at);
            assert_eq!(self.parse([a, b]), whole, "split into {a:?} and {b:?}");
        }
        assert_eq!(self.parse(text.split("")), whole, "{text:?} char by char");
        whole
    }
}

/// Joins neighbours of one type.
pub fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
    let mut list: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (list.last_mut(), &delta) {
            (Some(Delta::Text(last)), Delta::Text(text))
            | (Some(Delta::Reasoning(last)), Delta::Reasoning(text))
            | (Some(Delta::ToolCallArguments(last)), Delta::ToolCallArguments(text)) => last.push_str(text),
            _ => list.push(delta),
        }
    }
    list
}

/// One line for each text, reasoning and call.
pub fn lines(deltas: &[Delta]) -> String {
    let mut lines = String::new();
    for delta in deltas {
        match delta {
            Delta::Text(text) => lines.push_str(&format!("text {text:?}\n")),
            Delta::Reasoning(text) => lines.push_str(&format!("reasoning {text:?}\n")),
            Delta::ToolCallStart { id: None, name } => lines.push_str(&format!("call {name} ")),
            Delta::ToolCallStart { id: Some(id), name } => lines.push_str(&format!("call {name} ({id}) ")),
            Delta::ToolCallArguments(json) => lines.push_str(json),
            Delta::ToolCallEnd(CallEnding::Complete) => lines.push('\n'),
            Delta::ToolCallEnd(CallEnding::Cut) => lines.push_str(" cut\n"),
        }
    }
    lines
}
