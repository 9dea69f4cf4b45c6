//! Regular expressions of schemas: from ECMAScript's notation to that of llguidance.

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;

use super::budget::Budget;

/// Most states that are made to see whether an expression matches anything, as llguidance does.
const STATES_MAX: u64 = 10_000;

/// A pattern of a schema in the notation of llguidance. `None` if it has look-around, references to groups, or an error.
pub(super) fn translated(pattern: &str) -> Option<String> {
    let text = in_rust(pattern)?;
    let mut builder = RegexBuilder::new();
    builder.mk(&searched(&text)).ok()?;
    Some(text)
}

/// The texts in which a translated pattern occurs.
pub(super) fn searched(pattern: &str) -> RegexAst {
    RegexAst::SearchRegex(regex_to_lark(pattern, "dw"))
}

/// The texts of a length.
pub(super) fn of_length(least: u64, most: Option<u64>) -> RegexAst {
    let most = most.map_or(String::new(), |most| most.to_string());
    RegexAst::Regex(format!("(?s:.{{{least},{most}}})"))
}

/// What is known of the texts that match several expressions at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matches {
    /// There are some.
    Some,
    /// There are none.
    None,
    /// It takes too long to see.
    Unknown,
}

/// Whether texts match all of these expressions.
pub(super) fn matches(all: Vec<RegexAst>, budget: &Budget) -> Matches {
    let mut builder = RegexBuilder::new();
    let Ok(expression) = builder.mk(&RegexAst::And(all)) else { return Matches::Unknown };
    if builder.exprset().is_positive(expression) {
        return Matches::Some;
    }
    if !budget.expression() {
        return Matches::Unknown;
    }
    let Ok(mut regex) = builder.to_regex_limited(expression, STATES_MAX) else { return Matches::Unknown };
    if regex.always_empty() { Matches::None } else { Matches::Some }
}

/// Whether a translated pattern occurs in a text. `None` if that is not seen.
pub(super) fn occurs(pattern: &str, text: &str) -> Option<bool> {
    let mut builder = RegexBuilder::new();
    let expression = builder.mk(&searched(pattern)).ok()?;
    Some(builder.to_regex_limited(expression, STATES_MAX).ok()?.is_match(text))
}

/// ECMAScript's notation in Rust's: brackets in classes and braces that count nothing are literal.
fn in_rust(pattern: &str) -> Option<String> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut text = String::new();
    let mut in_class = false;
    let mut at = 0;
    while let Some(char) = chars.get(at).copied() {
        at += 1;
        let rest = chars.get(at..).unwrap_or_default();
        match char {
            '\\' => {
                let escape = rest.first().copied()?;
                at += 1 + escaped(escape, rest.get(1..).unwrap_or_default(), in_class, &mut text)?;
            }
            '[' if in_class => text.push_str("\\["),
            '[' => {
                in_class = true;
                match rest {
                    [']', ..] => return None,
                    ['^', ']', ..] => {
                        text.push_str("[\\s\\S]");
                        (at, in_class) = (at + 2, false);
                    }
                    ['^', ..] => {
                        text.push_str("[^");
                        at += 1;
                    }
                    _ => text.push('['),
                }
            }
            ']' if in_class => {
                in_class = false;
                text.push(']');
            }
            '&' | '~' | '-' if in_class && rest.first() == Some(&char) => {
                text.push('\\');
                text.push(char);
            }
            '{' if !in_class && !is_count(rest) => text.push_str("\\{"),
            '{' if !in_class => {
                let end = rest.iter().position(|char| *char == '}')?;
                text.push('{');
                text.extend(rest.get(..=end)?);
                at += end + 1;
            }
            '}' if !in_class => text.push_str("\\}"),
            '(' if !in_class && matches!(rest, ['?', '=' | '!', ..] | ['?', '<', '=' | '!', ..]) => {
                return None;
            }
            ']' => text.push_str("\\]"),
            other => text.push(other),
        }
    }
    (!in_class).then_some(text)
}

/// Writes an escape; the characters behind it that belong to it are counted.
fn escaped(escape: char, behind: &[char], in_class: bool, text: &mut String) -> Option<usize> {
    let hex = |digits: usize| {
        let found = behind.get(..digits)?;
        found.iter().all(char::is_ascii_hexdigit).then(|| found.iter().collect::<String>())
    };
    match escape {
        'b' if in_class => text.push_str("\\x08"),
        // What a word is differs at its border: Rust's is Unicode's.
        'b' | 'B' | 'k' | '1'..='9' => return None,
        '0' => text.push_str("\\x00"),
        'c' => {
            let letter = behind.first().filter(|char| char.is_ascii_alphabetic())?;
            text.push_str(&format!("\\x{:02x}", *letter as u32 % 32));
            return Some(1);
        }
        'x' => {
            text.push_str(&format!("\\x{}", hex(2)?));
            return Some(2);
        }
        'u' if behind.first() == Some(&'{') => text.push_str("\\u"),
        'u' => {
            text.push_str(&format!("\\u{}", hex(4)?));
            return Some(4);
        }
        'A' | 'z' | 'Z' => text.push(escape),
        'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'n' | 'r' | 't' | 'f' | 'v' | 'p' | 'P' => {
            text.push('\\');
            text.push(escape);
            if matches!(escape, 'p' | 'P') && behind.first() == Some(&'{') {
                let end = behind.iter().position(|char| *char == '}')?;
                text.extend(behind.get(..=end)?);
                return Some(end + 1);
            }
        }
        // Other letters stand for themselves.
        letter if letter.is_ascii_alphanumeric() => text.push(letter),
        other => text.push_str(&regex_syntax::escape(&other.to_string())),
    }
    Some(0)
}

/// Whether what follows a brace counts repetitions.
fn is_count(rest: &[char]) -> bool {
    let Some(end) = rest.iter().position(|char| *char == '}') else { return false };
    let inner: String = rest.iter().take(end).collect();
    let (least, most) = inner.split_once(',').unwrap_or((&inner, ""));
    let is_number = |text: &str| text.chars().all(|char| char.is_ascii_digit());
    !least.is_empty() && is_number(least) && is_number(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_of_ecmascript_is_understood() {
        for (pattern, text) in [
            (r"^a\/b$", "a/b"),
            (r"^[[a]$", "["),
            (r"^\_{1}x$", "_x"),
            (r"^\{a}$", "{a}"),
            (r"^a{b$", "a{b"),
            (r"^[\w-]+$", "a-b"),
            (r"^\u0041\cJ$", "A\n"),
            (r"^[^]$", "\n"),
            (r"^\-\@\#$", "-@#"),
            (r"^[a&&b]$", "&"),
            (r"b{2,}", "abbba"),
        ] {
            let translated = translated(pattern).unwrap_or_else(|| panic!("{pattern} is not understood"));
            assert_eq!(occurs(&translated, text), Some(true), "{pattern}: {translated}");
        }
    }

    #[test]
    fn what_is_no_regular_expression_is_not_translated() {
        for pattern in ["^(?!a)", "(?<=a)b", r"(a)\1", "[", "(", "a{2,1}", r"\bword\b"] {
            assert_eq!(translated(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn it_is_seen_whether_texts_match() {
        assert_eq!(matches(vec![searched("^a+$"), of_length(2, None)], &Budget::default()), Matches::Some);
        assert_eq!(matches(vec![searched("^a$"), of_length(2, None)], &Budget::default()), Matches::None);
    }
}
