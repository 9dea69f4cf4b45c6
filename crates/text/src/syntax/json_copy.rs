//! Copies one value from generated text into canonical JSON, as it arrives.
//!
//! Canonical: no whitespace between tokens, strings escaped as `serde_json` does, numbers as they were written. Read is
//! more than JSON, since models write more: Python's literals and quotes, line breaks in strings, a comma before a
//! closing bracket, and strings between markers of a format.

use super::{Found, Input, Peek, Stop, find};

/// The deepest nesting of brackets.
const MAX_DEPTH: usize = 128;

/// The longest number or word, in bytes.
const MAX_WORD: usize = 1024;

/// How strings are quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quotes {
    /// As in JSON or Python.
    Json,
    /// By this marker on both sides, without escapes. Keys may be bare.
    Marker(&'static str),
}

/// A copy in progress.
#[derive(Debug)]
pub(crate) struct JsonCopy {
    quotes: Quotes,
    brackets: Vec<Bracket>,
    expected: Expected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Object,
    Array,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    /// A value, or the end of the array.
    Item,
    /// A key, or the end of the object.
    Key,
    Colon,
    /// The rest of a string that began with this quote.
    String(Quote, Role),
    /// A comma or a closing bracket.
    Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quote {
    Double,
    Single,
    Marker(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

impl JsonCopy {
    pub fn new(quotes: Quotes) -> Self {
        Self { quotes, brackets: Vec::new(), expected: Expected::Value }
    }

    /// Appends what is known of the value to `out`. Ok when the value is complete; `out` may have grown either way.
    pub fn copy(&mut self, input: &mut Input, out: &mut String) -> Result<(), Stop> {
        loop {
            let is_value = match self.expected {
                Expected::Value => self.value(input, out)?,
                Expected::Item => self.item(input, out)?,
                Expected::Key => self.key(input, out)?,
                Expected::Colon => {
                    input.read(|peek| peek.whitespace().and_then(|()| peek.literal(":")))?;
                    out.push(':');
                    self.expected = Expected::Value;
                    false
                }
                Expected::String(quote, role) => {
                    string(input, quote, out)?;
                    self.expected = if role == Role::Key { Expected::Colon } else { Expected::Next };
                    role == Role::Value
                }
                Expected::Next => self.next(input, out)?,
            };
            if is_value {
                if self.brackets.is_empty() {
                    return Ok(());
                }
                self.expected = Expected::Next;
            }
        }
    }

    /// Whether a value is complete.
    fn value(&mut self, input: &mut Input, out: &mut String) -> Result<bool, Stop> {
        let start = input.read(|peek| {
            peek.whitespace()?;
            self.start_of_value(peek)
        })?;
        match start {
            Start::Bracket(bracket) => {
                if self.brackets.len() == MAX_DEPTH {
                    return Err(Stop::No);
                }
                self.brackets.push(bracket);
                out.push(if bracket == Bracket::Object { '{' } else { '[' });
                self.expected = if bracket == Bracket::Object { Expected::Key } else { Expected::Item };
                Ok(false)
            }
            Start::String(quote) => {
                out.push('"');
                self.expected = Expected::String(quote, Role::Value);
                Ok(false)
            }
            Start::Word(word) => {
                out.push_str(&word);
                Ok(true)
            }
        }
    }

    fn start_of_value(&self, peek: &mut Peek<'_>) -> Result<Start, Stop> {
        if let Quotes::Marker(marker) = self.quotes
            && peek.optional(marker)?
        {
            return Ok(Start::String(Quote::Marker(marker)));
        }
        let start = match peek.char()? {
            '{' => Start::Bracket(Bracket::Object),
            '[' => Start::Bracket(Bracket::Array),
            '"' => Start::String(Quote::Double),
            '\'' => Start::String(Quote::Single),
            _ => return self.word(peek).map(Start::Word),
        };
        peek.take(1);
        Ok(start)
    }

    /// A number or a constant, as JSON.
    fn word(&self, peek: &mut Peek<'_>) -> Result<String, Stop> {
        let is_part = |c: char| match self.quotes {
            Quotes::Json => c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_'),
            Quotes::Marker(_) => !matches!(c, ',' | '}' | ']' | '<' | '{' | '['),
        };
        let length = peek.rest().find(|c| !is_part(c)).unwrap_or(peek.rest().len());
        if length == peek.rest().len() && length <= MAX_WORD && !peek.has_ended() {
            return Err(Stop::More);
        }
        let word = peek.rest().get(..length).unwrap_or_default().trim_end();
        let json = match word {
            "" => return Err(Stop::No),
            "True" | "true" => "true".to_owned(),
            "False" | "false" => "false".to_owned(),
            "None" | "null" => "null".to_owned(),
            word if is_number(word) => word.to_owned(),
            word if self.quotes != Quotes::Json => json_string(word),
            _ => return Err(Stop::No),
        };
        peek.take(length);
        Ok(json)
    }

    fn item(&mut self, input: &mut Input, out: &mut String) -> Result<bool, Stop> {
        let is_closed = input.read(|peek| {
            peek.whitespace()?;
            peek.optional("]")
        })?;
        if is_closed {
            out.push(']');
            self.brackets.pop();
            return Ok(true);
        }
        self.expected = Expected::Value;
        Ok(false)
    }

    fn key(&mut self, input: &mut Input, out: &mut String) -> Result<bool, Stop> {
        let quotes = self.quotes;
        let key = input.read(|peek| {
            peek.whitespace()?;
            if peek.optional("}")? {
                return Ok(Key::Closed);
            }
            match quotes {
                Quotes::Marker(marker) if peek.optional(marker)? => Ok(Key::Quoted(Quote::Marker(marker))),
                Quotes::Marker(_) => {
                    peek.name(&[':', '{', '}', ',']).map(|name| Key::Bare(json_string(name)))
                }
                Quotes::Json if peek.optional("\"")? => Ok(Key::Quoted(Quote::Double)),
                Quotes::Json => peek.literal("'").map(|()| Key::Quoted(Quote::Single)),
            }
        })?;
        match key {
            Key::Closed => {
                out.push('}');
                self.brackets.pop();
                return Ok(true);
            }
            Key::Quoted(quote) => {
                out.push('"');
                self.expected = Expected::String(quote, Role::Key);
            }
            Key::Bare(name) => {
                out.push_str(&name);
                self.expected = Expected::Colon;
            }
        }
        Ok(false)
    }

    fn next(&mut self, input: &mut Input, out: &mut String) -> Result<bool, Stop> {
        let (end, then) = match self.brackets.last() {
            Some(Bracket::Object) => ("}", Expected::Key),
            _ => ("]", Expected::Item),
        };
        let is_closed = input.read(|peek| {
            peek.whitespace()?;
            if peek.optional(end)? {
                return Ok(true);
            }
            peek.literal(",")?;
            // The comma is written when something follows it.
            peek.whitespace()?;
            peek.optional(end)
        })?;
        if is_closed {
            out.push_str(end);
            self.brackets.pop();
            return Ok(true);
        }
        out.push(',');
        self.expected = then;
        Ok(false)
    }
}

enum Start {
    Bracket(Bracket),
    String(Quote),
    Word(String),
}

enum Key {
    Closed,
    Quoted(Quote),
    Bare(String),
}

/// Copies the rest of a string and its closing quote.
fn string(input: &mut Input, quote: Quote, out: &mut String) -> Result<(), Stop> {
    match quote {
        Quote::Marker(marker) => {
            let found = find(input.rest(), input.has_ended(), &[marker], |_, _| true);
            let (Found::At(at, _) | Found::Before(at)) = found;
            push_escaped(out, input.consume(at));
            if found == Found::Before(at) {
                return Err(if input.has_ended() { Stop::No } else { Stop::More });
            }
            input.consume(marker.len());
            out.push('"');
            Ok(())
        }
        Quote::Double => quoted(input, '"', out),
        Quote::Single => quoted(input, '\'', out),
    }
}

fn quoted(input: &mut Input, quote: char, out: &mut String) -> Result<(), Stop> {
    loop {
        let rest = input.rest();
        let plain = rest.find([quote, '\\']).unwrap_or(rest.len());
        push_escaped(out, input.consume(plain));
        let char = input.read(|peek| match peek.char()? {
            '\\' => escape(peek).map(Some),
            _ => {
                peek.take(1);
                // Templates write texts with apostrophes between single quotes without escapes.
                let is_end = quote == '"' || ends_value(&mut peek.clone())?;
                Ok(if is_end { None } else { Some(quote) })
            }
        })?;
        let Some(char) = char else {
            out.push('"');
            return Ok(());
        };
        push_escaped(out, char.encode_utf8(&mut [0; 4]));
    }
}

/// Whether what comes next can stand after a value.
fn ends_value(peek: &mut Peek<'_>) -> Result<bool, Stop> {
    peek.whitespace()?;
    Ok(peek.is_end() || matches!(peek.char()?, ',' | ')' | ']' | '}' | ':'))
}

/// Takes an escape sequence. One that is unknown stands for its backslash.
fn escape(peek: &mut Peek<'_>) -> Result<char, Stop> {
    let mut ahead = peek.clone();
    ahead.take(1);
    let kind = ahead.char()?;
    ahead.take(kind.len_utf8());
    let char = match kind {
        '"' | '\\' | '/' | '\'' => kind,
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => match unicode(&mut ahead) {
            Ok(char) => char,
            Err(Stop::More) => return Err(Stop::More),
            Err(Stop::No) => return Ok(backslash(peek)),
        },
        'x' => match hex(&mut ahead, 2) {
            Ok(code) => char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
            Err(Stop::More) => return Err(Stop::More),
            Err(Stop::No) => return Ok(backslash(peek)),
        },
        _ => return Ok(backslash(peek)),
    };
    peek.take(ahead.taken() - peek.taken());
    Ok(char)
}

fn backslash(peek: &mut Peek<'_>) -> char {
    peek.take(1);
    '\\'
}

/// The char of four digits, or of two such escapes that are a surrogate pair. A lone surrogate is U+FFFD.
fn unicode(peek: &mut Peek<'_>) -> Result<char, Stop> {
    let code = hex(peek, 4)?;
    if (0xD800..0xDC00).contains(&code) {
        let mut ahead = peek.clone();
        let low = ahead.literal("\\u").and_then(|()| hex(&mut ahead, 4));
        match low {
            Ok(low) if (0xDC00..0xE000).contains(&low) => {
                peek.take(ahead.taken() - peek.taken());
                let code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Err(Stop::More) => return Err(Stop::More),
            _ => {}
        }
    }
    Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn hex(peek: &mut Peek<'_>, digits: usize) -> Result<u32, Stop> {
    let mut code = 0;
    for _ in 0..digits {
        let digit = peek.char()?.to_digit(16).ok_or(Stop::No)?;
        peek.take(1);
        code = code * 16 + digit;
    }
    Ok(code)
}

/// Whether JSON has this number.
fn is_number(word: &str) -> bool {
    let starts_as_one = word.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    starts_as_one && serde_json::from_str::<serde::de::IgnoredAny>(word).is_ok()
}

fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    push_json_string(&mut json, text);
    json
}

/// Appends the text as a JSON string.
pub(crate) fn push_json_string(json: &mut String, text: &str) {
    json.push('"');
    push_escaped(json, text);
    json.push('"');
}

/// Appends a part of a string, escaped.
pub(crate) fn push_escaped(json: &mut String, text: &str) {
    for char in text.chars() {
        match char {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            char if char < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => json.push(char),
        }
    }
}
