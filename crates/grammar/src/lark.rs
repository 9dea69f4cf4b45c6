//! Texts of llguidance's Lark notation, and how deep a client's may nest.

mod in_json;
mod quoted_regex;

use crate::error::GrammarError;
pub(crate) use in_json::{expression_in_json, in_json};

/// Whitespace between JSON's tokens: a space, or a line break with indentation. An endless run is no progress.
pub(crate) const USUAL_WHITESPACE: &str = r" |\n[ \t]{0,40}";

/// A string literal. JSON's escapes are those of the notation, except that it has none for DEL.
pub(crate) fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A grammar whose text matches an expression as a whole, so anchors at its ends say nothing. As in JSON Schema, `\d` and
/// `\w` are ASCII.
pub(crate) fn regex(text: &str) -> String {
    format!("start: {}", expression(text))
}

/// The expression as a terminal.
pub(crate) fn expression(text: &str) -> String {
    let text = text.strip_prefix('^').unwrap_or(text);
    let is_anchor = |rest: &&str| rest.chars().rev().take_while(|char| *char == '\\').count() % 2 == 0;
    let text = text.strip_suffix('$').filter(is_anchor).unwrap_or(text);
    format!("/{}/", llguidance::regex_to_lark(text, "dw"))
}

/// Refuses brackets that nest too deep, in an expression or a grammar. Those in strings and classes count, too: the limit
/// is far above what readable grammars have. So do runs of prefix operators.
pub(crate) fn check_depth(text: &str, most: usize) -> Result<(), GrammarError> {
    let (mut depth, mut prefixes, mut escaped) = (0_usize, 0_usize, false);
    for char in text.chars() {
        prefixes = if char == '~' { prefixes + 1 } else { 0 };
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > most || prefixes > most {
            return Err(GrammarError::at("", format!("the grammar is nested more than {most} levels deep")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_at_the_ends_are_left_out() {
        assert_eq!(regex(r"^a/\d$"), r"start: /a\/[0-9]/");
        assert_eq!(regex(r"a\$"), r"start: /a\$/");
        assert_eq!(regex(r"a\\$"), r"start: /a\\/");
    }
}
