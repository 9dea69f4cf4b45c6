//! Strings and numbers in strings, as Python's `str` and Jinja's filters handle them.

use crate::error::RenderError;
use crate::lexer::is_space;
use crate::meter::TextBuilder;

/// Words between blanks, from the front or from the back; the last part of a limited split keeps its blanks.
pub(crate) struct Words<'a> {
    pub rest: &'a str,
    pub left: usize,
    pub last: bool,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;
    fn next(&mut self) -> Option<&'a str> {
        let rest = if self.last {
            self.rest.trim_end_matches(is_space)
        } else {
            self.rest.trim_start_matches(is_space)
        };
        if rest.is_empty() || self.left == 0 {
            return None;
        }
        self.left -= 1;
        if self.left == 0 {
            self.rest = "";
            return Some(rest);
        }
        let (word, after) = if self.last {
            let cut =
                rest.char_indices().rev().find(|(_, c)| is_space(*c)).map_or(0, |(at, c)| at + c.len_utf8());
            (&rest[cut..], &rest[..cut])
        } else {
            let cut = rest.find(is_space).unwrap_or(rest.len());
            (&rest[..cut], &rest[cut..])
        };
        self.rest = after;
        Some(word)
    }
}

/// Whether lines are given with what ends them.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum LineEnds {
    Kept,
    Dropped,
}

/// The lines of a text as `str.splitlines` knows them.
pub(crate) fn lines(text: &str, ends: LineEnds) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_line_end) {
        let mark = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        lines.push(&rest[..if ends == LineEnds::Kept { at + mark } else { at }]);
        rest = &rest[at + mark..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn is_line_end(character: char) -> bool {
    matches!(
        character,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Python's `is…` methods; none for other methods.
pub(crate) fn classify(text: &str, method: &str) -> Option<bool> {
    let all = |is: fn(char) -> bool| !text.is_empty() && text.chars().all(is);
    let cased = |upper: bool| {
        let lower_or_upper = |c: char| if upper { c.is_lowercase() } else { c.is_uppercase() };
        let wanted = |c: char| if upper { c.is_uppercase() } else { c.is_lowercase() };
        text.chars().any(wanted) && !text.chars().any(lower_or_upper)
    };
    Some(match method {
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => text.is_ascii(),
        "isdecimal" | "isdigit" => all(|c| c.is_numeric() && !c.is_alphabetic() && !is_fraction(c)),
        "isnumeric" => all(char::is_numeric),
        "isidentifier" => {
            let starts = text.starts_with(|c: char| c == '_' || c.is_alphabetic());
            starts && text.chars().all(|c| c == '_' || c.is_alphanumeric())
        }
        "isspace" => all(is_space),
        "islower" => cased(false),
        "isupper" => cased(true),
        "istitle" => text.chars().any(char::is_uppercase) && title(text) == text,
        _ => return None,
    })
}

/// Numbers that are no digits: fractions and the like.
fn is_fraction(character: char) -> bool {
    matches!(character, '\u{bc}'..='\u{be}' | '\u{2150}'..='\u{218b}')
}

pub(crate) fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters.as_str().to_lowercase().chars()).collect(),
        None => String::new(),
    }
}

pub(crate) fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut after_letter = false;
    for character in text.chars() {
        if after_letter {
            titled.extend(character.to_lowercase());
        } else {
            titled.extend(character.to_uppercase());
        }
        after_letter = character.is_lowercase() || character.is_uppercase();
    }
    titled
}

pub(crate) fn swap_case(text: &str) -> String {
    let mut swapped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_uppercase() {
            swapped.extend(character.to_lowercase());
        } else {
            swapped.extend(character.to_uppercase());
        }
    }
    swapped
}

/// Words start after blanks, hyphens and opening brackets, and only there, unlike in `str.title`.
pub(crate) fn title_filter(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut starts = true;
    for character in text.chars() {
        if starts {
            titled.extend(character.to_uppercase());
        } else {
            titled.extend(character.to_lowercase());
        }
        starts = is_space(character) || matches!(character, '-' | '(' | '{' | '[' | '<');
    }
    titled
}

pub(crate) fn strip_tags(text: &str) -> String {
    let mut stripped = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        let Some((_, after)) = after.split_once('>') else { break };
        stripped.push_str(before);
        rest = after;
    }
    stripped.push_str(rest);
    stripped.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn parse_int(text: &str, base: i128) -> Option<i128> {
    let text = text.trim().replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base))?;
    let prefix = match base {
        16 => "0x",
        8 => "0o",
        2 => "0b",
        _ => "",
    };
    let digits = digits.strip_prefix(prefix).unwrap_or(digits);
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i128::from_str_radix(digits, base).ok().map(|value| value * sign)
}

/// Writes `text` with the characters of HTML escaped.
pub(crate) fn escape(text: &str, out: &mut TextBuilder) -> Result<(), RenderError> {
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escaped = match byte {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'\'' => "&#39;",
            b'"' => "&#34;",
            _ => continue,
        };
        out.push(&text[plain..at])?;
        out.push(escaped)?;
        plain = at + 1;
    }
    out.push(&text[plain..])
}
