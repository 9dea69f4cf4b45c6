//! Writes rules of a grammar of calls.

use omnibus_text::tool_calls::{ArgumentStyle, IDENTIFIER, JSON_TYPE, NAME, WrittenCalls, WrittenReasoning};
use omnibus_text::{AddSpecial, Tokenizer};
use serde_json::{Map, Value, json};

use super::Tool;
use crate::error::GrammarError;
use crate::lark;
use crate::limits::GrammarLimits;

/// What the model may write for [`IDENTIFIER`].
const AN_IDENTIFIER: &str = "/[A-Za-z0-9_\\-]{1,32}/";

/// What the model may write for [`JSON_TYPE`].
const A_JSON_TYPE: &str = "/boolean|null|number|object|array/";

pub(super) struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    text: String,
    bytes_max: usize,
}

impl<'a> Writer<'a> {
    pub fn new(tokenizer: &'a Tokenizer, limits: &GrammarLimits) -> Self {
        Self { tokenizer, text: String::new(), bytes_max: limits.bytes }
    }

    /// An error once the rules are too long. Checked while they are written: references and definitions of a short schema
    /// may be written many times.
    pub fn check_size(&self) -> Result<(), GrammarError> {
        if self.text.len() <= self.bytes_max {
            return Ok(());
        }
        Err(GrammarError::at("", format!("the grammar of the calls has more than {} bytes", self.bytes_max)))
    }

    /// The rules written so far.
    pub fn into_text(self) -> String {
        self.text
    }

    pub fn rule(&mut self, name: &str, body: &str) {
        let body = if body.trim().is_empty() { "\"\"" } else { body };
        self.text += &format!("{name}: {body}\n");
    }

    /// A rule of the values that a schema allows, as JSON.
    pub fn json(&mut self, name: &str, schema: Map<String, Value>) {
        self.rule(name, &json_value(schema));
    }

    /// These texts, one after the other, as literals, special tokens and what stands in for text of the model's own.
    /// Nothing for no text.
    pub fn join(&self, texts: &[&str]) -> String {
        let whole = texts.concat();
        let mut parts = Vec::new();
        for piece in whole.split_inclusive([IDENTIFIER, JSON_TYPE]) {
            let literal = piece.trim_end_matches([IDENTIFIER, JSON_TYPE]);
            parts.extend(self.pieces(literal).iter().map(Piece::written));
            match piece.chars().next_back() {
                Some(IDENTIFIER) => parts.push(AN_IDENTIFIER.to_owned()),
                Some(JSON_TYPE) => parts.push(A_JSON_TYPE.to_owned()),
                _ => {}
            }
        }
        parts.join(" ")
    }

    /// The literals and special tokens of a text.
    fn pieces(&self, text: &str) -> Vec<Piece> {
        if text.is_empty() {
            return Vec::new();
        }
        let tokens = self.tokenizer.encode(text, AddSpecial::No).unwrap_or_default();
        let is_special = |token: &u32| self.tokenizer.special_ids().contains(token);
        if !tokens.iter().any(is_special) {
            return vec![Piece::Text(text.to_owned())];
        }
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        for token in tokens {
            if is_special(&token) {
                pieces.extend(take_text(&mut bytes));
                pieces.push(Piece::Special(token));
            } else {
                bytes.extend(self.tokenizer.id_to_piece(token).unwrap_or_default());
            }
        }
        pieces.extend(take_text(&mut bytes));
        pieces
    }

    /// A rule of a text that matches a terminal's expression and goes up to the first occurrence of `end`, which is
    /// included. Text never holds a special token, so a text before one ends there.
    pub fn text_until(&mut self, name: &str, expression: &str, end: &str) {
        let pieces = self.pieces(end);
        let Some(first) = pieces.iter().position(|piece| matches!(piece, Piece::Special(_))) else {
            self.text += &format!("{name}[suffix={}]: {expression}\n", lark::literal(end));
            return;
        };
        let (before, behind) = pieces.split_at(first);
        let terminal = name.to_uppercase();
        let before: Vec<String> = before.iter().map(Piece::written).collect();
        let behind: Vec<String> = behind.iter().map(Piece::written).collect();
        self.rule(name, &format!("{name}_text {}", behind.join(" ")));
        match before.is_empty() {
            true => self.rule(&format!("{name}_text"), expression),
            false => {
                self.rule(&terminal, &format!("({expression}) {}", before.join(" ")));
                self.rule(&format!("{name}_text"), &terminal);
            }
        }
    }

    /// The rule of one tool's calls. `head`: what comes before the arguments.
    pub fn call(&mut self, at: usize, tool: &Tool, (head, written): (&str, &WrittenCalls)) {
        let is_json = written.style == ArgumentStyle::Json && written.name.ends_with('"');
        let name = match is_json {
            // Inside of a JSON string.
            true => Value::from(tool.name.as_str()).to_string().trim_matches('"').to_owned(),
            false => tool.name.clone(),
        };
        let (head, end) = (self.join(&[&head.replace(NAME, &name)]), self.join(&[written.call_end]));
        self.rule(&format!("call_{at}"), &format!("{head} arguments_{at} {end}"));
    }

    /// Reasoning that may come before the calls, and the rule's use.
    pub fn reasoning(&mut self, reasoning: &WrittenReasoning) -> &'static str {
        let (begin, behind) = (self.join(&[reasoning.begin]), self.join(&[reasoning.behind]));
        self.rule("reasoning", &format!("{begin} reasoning_text {behind}"));
        self.text_until("reasoning_text", "/(.|\\n)*/", reasoning.end);
        "reasoning?"
    }

    /// A rule of rules in a row, each with whether it must be there, with a separator between those that are.
    pub fn sequence(&mut self, name: &str, members: &[(String, bool)], separator: &str) {
        if separator.is_empty() {
            let member =
                |(rule, required): &(String, bool)| if *required { rule.clone() } else { format!("{rule}?") };
            let members: Vec<String> = members.iter().map(member).collect();
            return self.rule(name, &members.join(" "));
        }
        let separator = lark::literal(separator);
        self.rule(name, &format!("{name}_first_0"));
        for (index, (member, required)) in members.iter().enumerate() {
            let next = index + 1;
            let mut first = format!("{member} {name}_more_{next}");
            let mut more = format!("{separator} {member} {name}_more_{next}");
            if !required {
                first += &format!(" | {name}_first_{next}");
                more += &format!(" | {name}_more_{next}");
            }
            self.rule(&format!("{name}_first_{index}"), &first);
            self.rule(&format!("{name}_more_{index}"), &more);
        }
        let last = members.len();
        self.rule(&format!("{name}_first_{last}"), "");
        self.rule(&format!("{name}_more_{last}"), "");
    }
}

/// A part of a text.
enum Piece {
    Text(String),
    Special(u32),
}

impl Piece {
    fn written(&self) -> String {
        match self {
            Self::Text(text) => lark::literal(text),
            Self::Special(token) => format!("<[{token}]>"),
        }
    }
}

/// Takes bytes as a text.
fn take_text(bytes: &mut Vec<u8>) -> Option<Piece> {
    let bytes = std::mem::take(bytes);
    (!bytes.is_empty()).then(|| Piece::Text(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The values that a schema allows, as JSON with the whitespace that models write.
pub(super) fn json_value(mut schema: Map<String, Value>) -> String {
    schema.insert("x-guidance".to_owned(), json!({ "whitespace_pattern": lark::USUAL_WHITESPACE }));
    format!("%json {}", Value::Object(schema))
}
