//! Texts of llguidance's Lark notation, and how deep a client's may nest.

use crate::GrammarError;

/// A string literal. JSON's escapes are those of the notation, except that it has none for DEL.
pub(crate) fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
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
