//! Cuts a template's source into text and the tokens inside its tags, with whitespace already trimmed as
//! `trim_blocks` and `lstrip_blocks` ask.
//!
//! Invariant: one pass, no backtracking: the time is linear in the source.

use std::sync::Arc;

use crate::ast::Name;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Text(Name),
    BlockStart,
    BlockEnd,
    OutputStart,
    OutputEnd,
    Name(Name),
    String(String),
    Int(i128),
    Float(f64),
    Symbol(&'static str),
    End,
}

/// A mistake in the source, with its line.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub line: u32,
    pub message: String,
}

/// All operators, longer ones before their prefixes.
const SYMBOLS: &[&str] = &[
    "==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]", "{",
    "}", ".", ",", ":", "|", ";",
];

/// The tokens of `source`, each with its line; the last is [`Token::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<(Token, u32)>, SyntaxError> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { rest: source, line: 1, at_line_start: true, tokens: Vec::new() };
    while lexer.text()? {}
    lexer.emit(Token::End);
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    /// Whether what was read last ended a line, so that blanks before the next tag are its indentation.
    at_line_start: bool,
    tokens: Vec<(Token, u32)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Tag {
    Block,
    Output,
    Comment,
}

impl Tag {
    fn end(self) -> &'static str {
        match self {
            Tag::Block => "%}",
            Tag::Output => "}}",
            Tag::Comment => "#}",
        }
    }
}

impl<'a> Lexer<'a> {
    fn emit(&mut self, token: Token) {
        self.tokens.push((token, self.line));
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { line: self.line, message: message.into() })
    }

    /// Moves past `length` bytes and counts their lines.
    fn skip(&mut self, length: usize) -> &'a str {
        let (skipped, rest) = self.rest.split_at(length);
        self.line += skipped.matches('\n').count() as u32;
        self.rest = rest;
        skipped
    }

    /// Reads text up to the next tag, then the tag. False when nothing is left.
    fn text(&mut self) -> Result<bool, SyntaxError> {
        let Some((start, tag)) = next_tag(self.rest) else {
            let text = self.skip(self.rest.len());
            self.emit_text(text);
            return Ok(false);
        };
        let text = self.skip(start);
        let sign = self.rest[2..].chars().next();
        let kept = self.trim_before(text, tag, sign);
        self.emit_text(kept);
        self.skip(if matches!(sign, Some('-' | '+')) { 3 } else { 2 });
        match tag {
            Tag::Comment => self.comment()?,
            Tag::Block if self.raw_follows() => self.raw()?,
            Tag::Block => {
                self.emit(Token::BlockStart);
                self.inside(tag)?;
                self.emit(Token::BlockEnd);
            }
            Tag::Output => {
                self.emit(Token::OutputStart);
                self.inside(tag)?;
                self.emit(Token::OutputEnd);
            }
        }
        Ok(true)
    }

    fn emit_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.emit(Token::Text(Arc::from(text)));
        }
    }

    /// `-` takes all blanks before a tag; else a block or comment takes the blanks that indent it.
    fn trim_before(&self, text: &'a str, tag: Tag, sign: Option<char>) -> &'a str {
        match sign {
            Some('-') => text.trim_end_matches(is_space),
            Some('+') => text,
            _ if tag == Tag::Output => text,
            _ => {
                let line = text.rfind('\n').map_or(0, |at| at + 1);
                let starts_line = line > 0 || self.at_line_start;
                if starts_line && text[line..].chars().all(is_space) { &text[..line] } else { text }
            }
        }
    }

    fn comment(&mut self) -> Result<(), SyntaxError> {
        let Some(end) = self.rest.find("#}") else {
            return self.fail("a comment is not closed: '#}' is missing");
        };
        // The sign belongs to the end of the tag.
        let end = if end > 0 && matches!(self.rest.as_bytes()[end - 1], b'-' | b'+') { end - 1 } else { end };
        self.skip(end);
        self.tag_end(Tag::Comment);
        Ok(())
    }

    /// Moves past the end of a tag that is known to be here, with the blanks it takes.
    fn tag_end(&mut self, tag: Tag) {
        let signed = matches!(self.rest.as_bytes().first(), Some(b'-' | b'+'));
        let takes_all = self.rest.starts_with('-');
        self.skip(if signed { 3 } else { 2 });
        let taken = if takes_all {
            self.rest.len() - self.rest.trim_start_matches(is_space).len()
        } else {
            usize::from(!signed && tag != Tag::Output && self.rest.starts_with('\n'))
        };
        self.at_line_start = self.skip(taken).ends_with('\n');
    }

    fn raw_follows(&self) -> bool {
        raw_tag(self.rest, "raw").is_some()
    }

    /// Text between `{% raw %}` and `{% endraw %}`, taken as it is.
    fn raw(&mut self) -> Result<(), SyntaxError> {
        let (length, takes_all) = raw_tag(self.rest, "raw").unwrap_or((0, false));
        self.skip(length);
        if takes_all {
            self.skip(self.rest.len() - self.rest.trim_start_matches(is_space).len());
        }
        self.at_line_start = false;
        let mut from = 0;
        while let Some(found) = self.rest[from..].find("{%") {
            let start = from + found;
            let inside = &self.rest[start + 2..];
            let sign = inside.chars().next().filter(|sign| matches!(sign, '-' | '+'));
            let inside = &inside[usize::from(sign.is_some())..];
            let name = inside.trim_start_matches(is_space);
            if let Some(after) = name.strip_prefix("endraw") {
                let close = after.trim_start_matches(is_space);
                if ["%}", "-%}", "+%}"].iter().any(|end| close.starts_with(end)) {
                    let text = self.trim_before(&self.rest[..start], Tag::Block, sign);
                    self.emit_text(text);
                    self.skip(self.rest.len() - close.len());
                    self.tag_end(Tag::Block);
                    return Ok(());
                }
            }
            from = start + 2;
        }
        self.fail("a raw block is not closed: '{% endraw %}' is missing")
    }

    /// The tokens of one tag, up to and past its end.
    fn inside(&mut self, tag: Tag) -> Result<(), SyntaxError> {
        let mut open: Vec<&'static str> = Vec::new();
        loop {
            let blanks = self.rest.len() - self.rest.trim_start_matches(is_space).len();
            self.skip(blanks);
            let unsigned = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
            if open.is_empty() && unsigned.starts_with(tag.end()) {
                self.tag_end(tag);
                return Ok(());
            }
            let Some(first) = self.rest.chars().next() else {
                return self.fail(format!("a tag is not closed: '{}' is missing", tag.end()));
            };
            match first {
                '\'' | '"' => self.string(first)?,
                '0'..='9' => self.number()?,
                _ if first == '_' || first.is_alphabetic() => {
                    let end =
                        self.rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(self.rest.len());
                    let name = Arc::from(self.skip(end));
                    self.emit(Token::Name(name));
                }
                _ => self.symbol(&mut open)?,
            }
        }
    }

    fn symbol(&mut self, open: &mut Vec<&'static str>) -> Result<(), SyntaxError> {
        let Some(&symbol) = SYMBOLS.iter().find(|symbol| self.rest.starts_with(**symbol)) else {
            let first = self.rest.chars().next().unwrap_or(' ');
            return self.fail(format!("unexpected character {first:?}"));
        };
        let closes = match symbol {
            "(" => return self.open(")", symbol, open),
            "[" => return self.open("]", symbol, open),
            "{" => return self.open("}", symbol, open),
            ")" | "]" | "}" => true,
            _ => false,
        };
        if closes && open.pop() != Some(symbol) {
            return self.fail(format!("unexpected '{symbol}'"));
        }
        self.skip(symbol.len());
        self.emit(Token::Symbol(symbol));
        Ok(())
    }

    fn open(
        &mut self,
        close: &'static str,
        symbol: &'static str,
        open: &mut Vec<&'static str>,
    ) -> Result<(), SyntaxError> {
        open.push(close);
        self.skip(1);
        self.emit(Token::Symbol(symbol));
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<(), SyntaxError> {
        let line = self.line;
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some((_, escaped)) => unescape(escaped, &mut text, &mut characters),
                    None => break,
                },
                _ if character == quote => {
                    self.skip(at + 1);
                    self.tokens.push((Token::String(text), line));
                    return Ok(());
                }
                _ => text.push(character),
            }
        }
        self.fail("a string is not closed")
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        let (radix, prefix) = match self.rest.get(..2).map(str::to_ascii_lowercase).as_deref() {
            Some("0x") => (16, 2),
            Some("0o") => (8, 2),
            Some("0b") => (2, 2),
            _ => (10, 0),
        };
        let digits = |text: &str| -> usize {
            text.find(|c: char| !(c.is_digit(radix) || c == '_')).unwrap_or(text.len())
        };
        let mut length = prefix + digits(&self.rest[prefix..]);
        let mut is_float = false;
        if radix == 10 {
            let after = &self.rest[length..];
            if after.starts_with('.') && after[1..].starts_with(|c: char| c.is_ascii_digit()) {
                length += 1 + digits(&after[1..]);
                is_float = true;
            }
            let exponent = self.rest[length..].strip_prefix(['e', 'E']);
            if let Some(exponent) = exponent {
                let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
                    length = self.rest.len() - unsigned.len() + digits(unsigned);
                    is_float = true;
                }
            }
        }
        let text = self.skip(length).replace('_', "");
        let token = if is_float {
            text.parse().ok().map(Token::Float)
        } else {
            i128::from_str_radix(&text[prefix..], radix).ok().map(Token::Int)
        };
        match token {
            Some(token) => self.emit(token),
            None => return self.fail(format!("'{text}' is not a number this server can hold")),
        }
        Ok(())
    }
}

/// Blanks as Python's `\s` and `str.strip` know them.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

fn next_tag(text: &str) -> Option<(usize, Tag)> {
    let bytes = text.as_bytes();
    (0..bytes.len().saturating_sub(1)).find_map(|at| match (bytes[at], bytes[at + 1]) {
        (b'{', b'%') => Some((at, Tag::Block)),
        (b'{', b'{') => Some((at, Tag::Output)),
        (b'{', b'#') => Some((at, Tag::Comment)),
        _ => None,
    })
}

/// If `rest` (just past `{%`) opens `{% raw %}`: the length up to its end and whether it takes the blanks after.
fn raw_tag(rest: &str, name: &str) -> Option<(usize, bool)> {
    let after = rest.trim_start_matches(is_space).strip_prefix(name)?.trim_start_matches(is_space);
    let takes_all = after.starts_with("-%}");
    let end = after.strip_prefix("-%}").or_else(|| after.strip_prefix("%}"))?;
    Some((rest.len() - end.len(), takes_all))
}

/// One escape sequence of a string literal. An unknown sequence stays as written, as in Python.
fn unescape(
    escaped: char,
    text: &mut String,
    characters: &mut (impl Iterator<Item = (usize, char)> + Clone),
) {
    let mut hex = |length: usize| -> Option<char> {
        let mut ahead = characters.clone();
        let digits: String = ahead.by_ref().take(length).map(|(_, c)| c).collect();
        let character = char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?;
        if digits.chars().count() < length {
            return None;
        }
        *characters = ahead;
        Some(character)
    };
    let decoded = match escaped {
        'n' => Some('\n'),
        't' => Some('\t'),
        'r' => Some('\r'),
        '0' => Some('\0'),
        'a' => Some('\u{7}'),
        'b' => Some('\u{8}'),
        'f' => Some('\u{c}'),
        'v' => Some('\u{b}'),
        '\\' | '\'' | '"' => Some(escaped),
        '\n' => return,
        'x' => hex(2),
        'u' => hex(4),
        'U' => hex(8),
        _ => None,
    };
    match decoded {
        Some(character) => text.push(character),
        None => text.extend(['\\', escaped]),
    }
}
