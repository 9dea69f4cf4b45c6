//! Grammars of texts inside of a JSON string: a grammar in Lark's notation whose terminals match the text as JSON spells it.
//!
//! What a grammar matches is spelled character by character, so it is enough to spell its terminals. They become rules,
//! whose terminals are escapes and runs of other characters; what is ignored between terminals stays one terminal. The
//! notation is read as far as that needs.

use super::quoted_regex::{quoted_text, rule, terminal};
use crate::error::GrammarError;

/// Terminals that a grammar may import from Lark's `common`.
const COMMON: &[(&str, &str)] = &[
    ("DIGIT", "[0-9]"),
    ("HEXDIGIT", "[0-9a-fA-F]"),
    ("INT", "[0-9]+"),
    ("SIGNED_INT", "[+-]?[0-9]+"),
    ("DECIMAL", r"[0-9]+\.[0-9]*|\.[0-9]+"),
    ("FLOAT", r"[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
    ("SIGNED_FLOAT", r"[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)"),
    ("NUMBER", r"[0-9]+([eE][+-]?[0-9]+)?|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
    ("SIGNED_NUMBER", r"[+-]?([0-9]+([eE][+-]?[0-9]+)?|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)"),
    ("ESCAPED_STRING", r#""([^"\\\n]|\\.)*""#),
    ("LCASE_LETTER", "[a-z]"),
    ("UCASE_LETTER", "[A-Z]"),
    ("LETTER", "[A-Za-z]"),
    ("WORD", "[A-Za-z]+"),
    ("CNAME", "[_A-Za-z][_A-Za-z0-9]*"),
    ("WS_INLINE", r"[ \t]+"),
    ("WS", r"[ \t\f\r\n]+"),
    ("CR", r"\r"),
    ("LF", r"\n"),
    ("NEWLINE", r"(\r?\n)+"),
    ("SH_COMMENT", r"#[^\n]*"),
    ("CPP_COMMENT", r"//[^\n]*"),
    ("SQL_COMMENT", r"--[^\n]*"),
];

/// The grammar for texts in JSON's spelling.
pub(crate) fn in_json(grammar: &str) -> Result<String, GrammarError> {
    let tokens = Reader { rest: grammar }.tokens()?;
    let statements = statements(&tokens);
    let ignores = tokens.iter().any(|token| matches!(token, Token::Ignore));
    let mut written = String::new();
    for statement in statements {
        match statement.iter().find(|token| !token.is_blank()) {
            None => {}
            Some(Token::Ignore) => written += &write(statement, Form::Terminal)?,
            Some(Token::Import(line)) => {
                for (name, expression) in imported(line)? {
                    let tokens = [Token::Name(name), Token::Other(": "), Token::Expression(expression, "")];
                    written += &write(&tokens, Form::Rule)?;
                    if ignores {
                        written += &write(&tokens, Form::Terminal)?;
                    }
                }
            }
            Some(first) => {
                written += &write(statement, Form::Rule)?;
                if ignores && matches!(first, Token::Name(name) if is_terminal(name)) {
                    written += &write(statement, Form::Terminal)?;
                }
            }
        }
    }
    Ok(written)
}

/// A regular expression for texts in JSON's spelling, as a terminal. What follows it must be no text.
pub(crate) fn expression_in_json(expression: &str) -> Result<String, GrammarError> {
    spelled(expression, terminal(expression, ""))
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'a> {
    /// Of a rule or a terminal.
    Name(&'a str),
    /// A text, and whether case matters.
    Text(String, Case),
    /// All characters from one to another.
    Range(String, String),
    /// An expression, and its flags.
    Expression(&'a str, &'a str),
    Ignore,
    Import(&'a str),
    LineEnd,
    /// Whitespace or an operator.
    Other(&'a str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Matters,
    Ignored,
}

/// What terminals are written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Rule,
    Terminal,
}

impl Token<'_> {
    fn is_blank(&self) -> bool {
        matches!(self, Self::LineEnd) || matches!(self, Self::Other(text) if text.trim().is_empty())
    }
}

/// A statement goes on in the next line where that begins with a bar.
fn statements<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let (mut statements, mut begin) = (Vec::new(), 0);
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| **token == Token::LineEnd) {
        let next = tokens.iter().skip(at).find(|token| !token.is_blank());
        if next != Some(&Token::Other("|")) {
            statements.extend(tokens.get(begin..at));
            begin = at + 1;
        }
    }
    statements.extend(tokens.get(begin..));
    statements
}

fn write(tokens: &[Token<'_>], form: Form) -> Result<String, GrammarError> {
    let mut written = String::new();
    for token in tokens {
        written += &match token {
            Token::Name(name) if form == Form::Rule && is_terminal(name) => {
                format!("terminal_{}", name.to_ascii_lowercase())
            }
            Token::Name(name) => (*name).to_owned(),
            Token::Text(text, Case::Matters) => super::literal(&quoted_text(text)),
            Token::Text(text, Case::Ignored) => expression(&regex_syntax::escape(text), "i", form)?,
            Token::Range(first, last) => {
                let [first, last] = [first, last].map(|text| regex_syntax::escape(text));
                expression(&format!("[{first}-{last}]"), "", form)?
            }
            Token::Expression(text, flags) => expression(text, flags, form)?,
            Token::Ignore => "%ignore".to_owned(),
            Token::Import(_) => String::new(),
            Token::LineEnd => "\n".to_owned(),
            Token::Other(text) => (*text).to_owned(),
        };
    }
    written.push('\n');
    Ok(written)
}

fn expression(text: &str, flags: &str, form: Form) -> Result<String, GrammarError> {
    spelled(
        text,
        match form {
            Form::Rule => rule(text, flags),
            Form::Terminal => terminal(text, flags),
        },
    )
}

fn spelled(expression: &str, spelled: Result<String, String>) -> Result<String, GrammarError> {
    spelled.map_err(|why| GrammarError::at("", format!("the expression /{expression}/ {why}")))
}

fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|char: char| char.is_ascii_uppercase())
}

/// Names and expressions of `%import common.NAME`, `%import common.NAME -> OTHER` or `%import common (NAME, …)`.
fn imported(line: &str) -> Result<Vec<(&str, &'static str)>, GrammarError> {
    let path = line.trim().strip_prefix("common");
    let path = path.ok_or_else(|| refused("an import from elsewhere than `common`"))?;
    let names: Vec<(&str, &str)> = match path.strip_prefix('.') {
        Some(one) => {
            let (name, alias) = one.split_once("->").unwrap_or((one, one));
            vec![(name.trim(), alias.trim())]
        }
        None => {
            let list = path.trim().trim_matches(['(', ')']).split(',').map(str::trim);
            list.map(|name| (name, name)).collect()
        }
    };
    let common = |(name, alias)| {
        let found =
            COMMON.iter().find(|(known, _)| *known == name).map(|(_, expression)| (alias, *expression));
        found.ok_or_else(|| GrammarError::at("", format!("`common` has no terminal `{name}`")))
    };
    names.into_iter().map(common).collect()
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn tokens(mut self) -> Result<Vec<Token<'a>>, GrammarError> {
        let mut tokens = Vec::new();
        while !self.rest.is_empty() {
            tokens.extend(self.next()?);
        }
        Ok(tokens)
    }

    /// The next token. `None` for a comment.
    fn next(&mut self) -> Result<Option<Token<'a>>, GrammarError> {
        let rest = self.rest;
        let line = rest.find('\n').unwrap_or(rest.len());
        let name = rest.len()
            - rest.trim_start_matches(|char: char| char.is_ascii_alphanumeric() || char == '_').len();
        Ok(Some(match rest.as_bytes().first() {
            Some(b'"') => self.string()?,
            Some(b'/') if !rest.starts_with("//") => {
                let (expression, flags) = self.expression()?;
                Token::Expression(expression, flags)
            }
            Some(b'/' | b'#') => {
                self.take(line);
                return Ok(None);
            }
            Some(b'\n') => {
                self.take(1);
                Token::LineEnd
            }
            Some(b'%') if rest.starts_with("%ignore") => {
                self.take("%ignore".len());
                Token::Ignore
            }
            Some(b'%') if rest.starts_with("%import") => {
                let line = self.take(line).trim_start_matches("%import");
                Token::Import(line.split("//").next().unwrap_or_default())
            }
            Some(b'%') => return Err(refused("a directive but %ignore and %import")),
            Some(b'<' | b'@') => return Err(refused("a special token or another grammar")),
            Some(b'~') if !self.is_repetition() => return Err(refused("a complement")),
            Some(b'&') => return Err(refused("an intersection")),
            _ if name > 0 => Token::Name(self.take(name)),
            _ => Token::Other(self.take(rest.chars().next().map_or(1, char::len_utf8))),
        }))
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn is_repetition(&self) -> bool {
        let behind = self.rest.trim_start_matches('~').trim_start_matches([' ', '\t']);
        behind.starts_with(|char: char| char.is_ascii_digit())
    }

    /// A string, or a range of two.
    fn string(&mut self) -> Result<Token<'a>, GrammarError> {
        let text = self.literal()?;
        if let Some(behind) = self.rest.strip_prefix("..") {
            self.rest = behind;
            return Ok(Token::Range(text, self.literal()?));
        }
        let is_flag = self.rest.starts_with('i')
            && !self.rest.get(1..).is_some_and(|rest| rest.starts_with(|char: char| char.is_alphanumeric()));
        if is_flag {
            self.take(1);
        }
        Ok(Token::Text(text, if is_flag { Case::Ignored } else { Case::Matters }))
    }

    fn literal(&mut self) -> Result<String, GrammarError> {
        let end = closing(self.rest, '"').ok_or_else(|| refused("a string without an end"))?;
        let text = self.take(end + 1);
        serde_json::from_str(text).map_err(|_| refused("a string that is not one of JSON"))
    }

    /// An expression between slashes, and its flags.
    fn expression(&mut self) -> Result<(&'a str, &'a str), GrammarError> {
        let end = closing(self.rest, '/').ok_or_else(|| refused("an expression without an end"))?;
        let expression = self.take(end + 1);
        let flags = self.rest.len() - self.rest.trim_start_matches(['i', 'm', 's', 'l', 'u', 'x']).len();
        Ok((expression.get(1..end).unwrap_or_default(), self.take(flags)))
    }
}

fn refused(what: &str) -> GrammarError {
    GrammarError::at("", format!("a grammar of a tool's input cannot have {what}"))
}

/// Where the mark that ends what begins with it stands, backslashes considered.
fn closing(text: &str, mark: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().skip(1).find_map(|(at, char)| {
        let is_end = !escaped && char == mark;
        escaped = !escaped && char == '\\';
        is_end.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(grammar: &str, expected: Expect) {
        expected.assert_eq(&in_json(grammar).unwrap_or_else(|error| error.message));
    }

    #[test]
    fn terminals_are_spelled_as_in_json() {
        check(
            "start: \"say \\\"hi\\\"\\n\" word~1..3 LF? // end\nword: /[^\\n]+/ \"END\"i\n%import common.LF\n",
            expect![[r#"
                start: "say \\\"hi\\\"\\n" word~1..3 terminal_lf? 
                word: (/[ !\#-\[\]-􏿿]+/ | /(?:(?:\\u0000)|(?:\\u0001)|(?:\\u0002)|(?:\\u0003)|(?:\\u0004)|(?:\\u0005)|(?:\\u0006)|(?:\\u0007)|(?:\\b)|(?:\\t)|(?:\\u000b)|(?:\\f)|(?:\\r)|(?:\\u000e)|(?:\\u000f)|(?:\\u0010)|(?:\\u0011)|(?:\\u0012)|(?:\\u0013)|(?:\\u0014)|(?:\\u0015)|(?:\\u0016)|(?:\\u0017)|(?:\\u0018)|(?:\\u0019)|(?:\\u001a)|(?:\\u001b)|(?:\\u001c)|(?:\\u001d)|(?:\\u001e)|(?:\\u001f)|(?:\\")|(?:\\\\))/)+ ((/[Ee]/) (/[Nn]/) (/[Dd]/))
                terminal_lf: "\\n"
            "#]],
        );
        check(
            "start: \"a\"..\"c\" | A\n%import common (INT, LF)\n%ignore /[ \\/]/",
            expect![[r#"
            start: (/[a-c]/) | terminal_a
            terminal_int: (/[0-9]+/)+
            INT: /[0-9]+/
            terminal_lf: "\\n"
            LF: /(?:\\n)/
            %ignore /[ \/]/
        "#]],
        );
        check(
            "start: X\n%import common.WORD -> X",
            expect![[r#"
            start: terminal_x
            terminal_x: (/[A-Za-z]+/)+
        "#]],
        );
    }

    #[test]
    fn what_has_no_spelling_is_refused_by_name() {
        check(
            "start: <[3]>",
            expect!["a grammar of a tool's input cannot have a special token or another grammar"],
        );
        check(
            "start: %json {}",
            expect!["a grammar of a tool's input cannot have a directive but %ignore and %import"],
        );
        check("start: ~A\nA: /a/", expect!["a grammar of a tool's input cannot have a complement"]);
        check("start: \"a", expect!["a grammar of a tool's input cannot have a string without an end"]);
        check("start: /a", expect!["a grammar of a tool's input cannot have an expression without an end"]);
        check("%import common.FOO", expect!["`common` has no terminal `FOO`"]);
        check(
            "%import python.NAME",
            expect!["a grammar of a tool's input cannot have an import from elsewhere than `common`"],
        );
    }
}
