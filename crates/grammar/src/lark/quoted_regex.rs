//! Regular expressions of texts inside of a JSON string: each character as JSON writes it.
//!
//! Invariant: a character has one spelling, so that the quoted expression matches exactly the quoted texts.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Repetition};

/// The expression for texts in JSON's spelling, as one terminal. `flags`: letters after the closing slash. Fails with the
/// reason.
pub(super) fn terminal(expression: &str, flags: &str) -> Result<String, String> {
    Ok(slashes(&quote(&parse(expression, flags)?)?))
}

/// The expression for texts in JSON's spelling, as a part of a rule. A terminal ends where the next character decides
/// it, and of an escape the first character does not; so an escape is a terminal of its own here.
pub(super) fn rule(expression: &str, flags: &str) -> Result<String, String> {
    part(&parse(expression, flags)?)
}

fn parse(expression: &str, flags: &str) -> Result<Hir, String> {
    let mut parser = ParserBuilder::new();
    for flag in flags.chars() {
        match flag {
            'i' => parser.case_insensitive(true),
            'm' => parser.multi_line(true),
            's' => parser.dot_matches_new_line(true),
            'x' => parser.ignore_whitespace(true),
            _ => &mut parser,
        };
    }
    parser.build().parse(expression).map_err(|_| "is not a regular expression".to_owned())
}

/// An expression between slashes.
fn slashes(expression: &Hir) -> String {
    let text = expression.to_string();
    format!("/{}/", if text.is_empty() { "(?:)".to_owned() } else { text.replace('/', "\\/") })
}

fn part(hir: &Hir) -> Result<String, String> {
    let all = |parts: &[Hir]| parts.iter().map(part).collect::<Result<Vec<String>, String>>();
    Ok(match hir.kind() {
        HirKind::Empty => "\"\"".to_owned(),
        HirKind::Literal(literal) => super::literal(&quoted_text(text(&literal.0)?)),
        HirKind::Class(class) => class_part(&unicode(class)?, ""),
        HirKind::Look(_) => return Err(LOOKS.to_owned()),
        HirKind::Capture(capture) => part(&capture.sub)?,
        HirKind::Concat(parts) => format!("({})", all(parts)?.join(" ")),
        HirKind::Alternation(parts) => format!("({})", all(parts)?.join(" | ")),
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let sub = match (sub.kind(), max) {
                // A run of characters that stand for themselves is one terminal.
                (HirKind::Class(class), None) if *min <= 1 => class_part(&unicode(class)?, "+"),
                _ => format!("({})", part(sub)?),
            };
            match (min, max) {
                (0, None) => format!("{sub}*"),
                (1, None) => format!("{sub}+"),
                (0, Some(1)) => format!("{sub}?"),
                (min, None) => format!("{sub}{{{min},}}"),
                (min, Some(max)) => format!("{sub}{{{min},{max}}}"),
            }
        }
    })
}

/// The characters of a class that stand for themselves, and its escapes.
fn class_part(class: &ClassUnicode, repeated: &str) -> String {
    let (plain, escapes) = plain_and_escapes(class);
    let mut terminals = Vec::new();
    if !plain.ranges().is_empty() {
        let class = Hir::class(Class::Unicode(plain)).to_string().replace('/', "\\/");
        let class =
            if class.starts_with('[') || repeated.is_empty() { class } else { format!("(?:{class})") };
        terminals.push(format!("/{class}{repeated}/"));
    }
    if !escapes.is_empty() {
        terminals.push(slashes(&Hir::alternation(escapes)));
    }
    format!("({})", terminals.join(" | "))
}

const LOOKS: &str = "has an anchor or a word border";

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "matches bytes that are no text".to_owned())
}

fn unicode(class: &Class) -> Result<ClassUnicode, String> {
    match class {
        Class::Unicode(class) => Ok(class.clone()),
        Class::Bytes(class) => {
            class.to_unicode_class().ok_or_else(|| "matches bytes that are no text".to_owned())
        }
    }
}

/// A text in JSON's spelling, without its quotes.
pub(super) fn quoted_text(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

fn quote(hir: &Hir) -> Result<Hir, String> {
    let all = |parts: &[Hir]| parts.iter().map(quote).collect::<Result<Vec<Hir>, String>>();
    Ok(match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(quoted_text(text(&literal.0)?).into_bytes()),
        HirKind::Class(class) => {
            let (plain, escapes) = plain_and_escapes(&unicode(class)?);
            Hir::alternation(std::iter::once(Hir::class(Class::Unicode(plain))).chain(escapes).collect())
        }
        HirKind::Look(_) => return Err(LOOKS.to_owned()),
        HirKind::Repetition(repetition) => {
            let sub = Box::new(quote(&repetition.sub)?);
            Hir::repetition(Repetition { sub, ..repetition.clone() })
        }
        HirKind::Capture(capture) => quote(&capture.sub)?,
        HirKind::Concat(parts) => Hir::concat(all(parts)?),
        HirKind::Alternation(parts) => Hir::alternation(all(parts)?),
    })
}

/// The characters that stand for themselves, and the escapes of those that do not.
fn plain_and_escapes(class: &ClassUnicode) -> (ClassUnicode, Vec<Hir>) {
    let control = ClassUnicodeRange::new('\0', '\u{1f}');
    let marks = ['"', '\\'].map(|mark| ClassUnicodeRange::new(mark, mark));
    let escaped = ClassUnicode::new([control].into_iter().chain(marks));
    let (mut plain, mut others) = (class.clone(), class.clone());
    plain.difference(&escaped);
    others.intersect(&escaped);
    let chars = others.ranges().iter().flat_map(|range| range.start()..=range.end());
    (plain, chars.map(|char| Hir::literal(quoted_text(&char.to_string()).into_bytes())).collect())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(expression: &str, flags: &str, expected: Expect) {
        let forms = [terminal(expression, flags).unwrap(), rule(expression, flags).unwrap()];
        expected.assert_eq(&forms.join("\n"));
    }

    #[test]
    fn characters_are_spelled_as_in_json() {
        check(
            "a\"b",
            "",
            expect![[r#"
            /(?:a\\"b)/
            "a\\\"b""#]],
        );
        check(
            r"\n|x/y",
            "",
            expect![[r#"
            /(?:(?:\\n)|(?:x\/y))/
            ("\\n" | "x/y")"#]],
        );
        check(
            "[\"a/]+b{2,3}",
            "",
            expect![[r#"
            /(?:(?:[\/a]|(?:\\"))+b{2,3})/
            ((/[\/a]+/ | /(?:\\")/)+ ("b"){2,3})"#]],
        );
        check(
            "",
            "",
            expect![[r#"
            /(?:)/
            """#]],
        );
    }

    #[test]
    fn what_looks_around_is_refused() {
        for expression in ["^a", r"a\b", "("] {
            assert!(terminal(expression, "").is_err() && rule(expression, "").is_err(), "{expression}");
        }
    }
}
