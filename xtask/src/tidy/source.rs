//! A Rust file as code: comments blanked, string contents covered, test code marked by line.
//!
//! Invariant: covering keeps line numbers. It reads tokens, not grammar.

/// A Rust file.
pub struct Source {
    /// From the workspace's folder.
    pub path: String,
    /// As written, by line.
    pub text: Vec<String>,
    /// `text` with spaces for comments, and `_` for the contents of strings and characters.
    pub code: Vec<String>,
    /// Whether each line is test code.
    tests: Vec<bool>,
    /// Names of test modules that are files.
    outside: Vec<String>,
}

impl Source {
    /// Reads a file.
    pub fn new(path: &str, text: &str) -> Self {
        let code = cover(text);
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (text, blanked) = (lines(text), lines(&code));
        let mut source = Self {
            path: path.to_owned(),
            tests: vec![is_test_path(path); text.len().max(1)],
            text,
            code: blanked,
            outside: Vec::new(),
        };
        source.mark_items(&code.chars().collect::<Vec<_>>());
        source
    }

    /// Whether a line, counted from 0, is test code.
    pub fn is_test(&self, line: usize) -> bool {
        self.tests.get(line).copied().unwrap_or(false)
    }

    /// Lines of code that are not test code, counted from 1.
    pub fn work(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.code.iter().enumerate().filter(|(index, _)| !self.is_test(*index));
        numbered.map(|(index, line)| (index + 1, line.as_str()))
    }

    /// The crate's folder below `crates/`, if it is in one.
    pub fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Paths of test modules that are files, without `.rs`.
    pub fn test_modules(&self) -> Vec<String> {
        let stem = self.path.trim_end_matches(".rs");
        let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let folder = if matches!(name, "lib" | "main" | "mod") { folder } else { stem };
        self.outside.iter().map(|name| format!("{folder}/{name}")).collect()
    }

    /// Whether this is that module's file, or a file of a module inside it.
    pub fn is_module(&self, module: &str) -> bool {
        self.path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    }

    /// Marks the whole file as test code.
    pub fn mark_as_test(&mut self) {
        self.tests.fill(true);
    }

    /// Finds items under `#[cfg(test)]`.
    fn mark_items(&mut self, code: &[char]) {
        let mut at = 0;
        while let Some(begin) = find(code, at, "#[cfg(") {
            let end = closing(code, begin + 1);
            let condition: String = code[begin..end].iter().collect();
            at = end;
            if !has_word(&condition, "test") || condition.contains("not(") {
                continue;
            }
            let item = after_attributes(code, end);
            let stop = item_end(code, item);
            let head: String = code[item..stop].iter().collect();
            if let Some(name) = head.strip_suffix(';').and_then(|head| head.split("mod ").nth(1)) {
                self.outside.push(name.trim().to_owned());
            }
            let line = |at: usize| code[..at].iter().filter(|c| **c == '\n').count();
            let (first, last) = (line(begin), line(stop.saturating_sub(1)));
            self.tests.iter_mut().take(last + 1).skip(first).for_each(|test| *test = true);
            at = stop.max(at);
        }
    }
}

/// Whether `code` contains `word` as a whole word.
pub fn has_word(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(part) && !code[at + word.len()..].starts_with(part))
}

fn is_test_path(path: &str) -> bool {
    path.split('/').any(|folder| matches!(folder, "tests" | "benches" | "examples"))
}

fn find(code: &[char], from: usize, needle: &str) -> Option<usize> {
    let needle: Vec<char> = needle.chars().collect();
    code.get(from..)?.windows(needle.len()).position(|window| window == needle).map(|at| from + at)
}

/// The position after the bracket that closes the one at `open`.
fn closing(code: &[char], open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code.iter().enumerate().skip(open) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

fn after_attributes(code: &[char], mut at: usize) -> usize {
    loop {
        while code.get(at).is_some_and(|c| c.is_whitespace()) {
            at += 1;
        }
        match code.get(at..at + 2) {
            Some(['#', '[']) => at = closing(code, at + 1),
            _ => return at,
        }
    }
}

/// The position after an item: after its body, or after its semicolon.
pub fn item_end(code: &[char], mut at: usize) -> usize {
    while let Some(c) = code.get(at) {
        match c {
            ';' => return at + 1,
            '{' => return closing(code, at),
            '(' | '[' => at = closing(code, at),
            _ => at += 1,
        }
    }
    code.len()
}

/// Covers comments and the contents of strings and characters. Quotes stay.
fn cover(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = token_end(&chars, at);
        match end {
            None => code.push(chars[at]),
            Some((end, Token::Comment)) => put(&mut code, &chars[at..end], ' '),
            Some((end, Token::Quoted)) => {
                let open = chars[at..end].iter().take_while(|c| !matches!(c, '"' | '\'')).count() + 1;
                let close = if end > at + open { end - 1 } else { end };
                code.extend(&chars[at..at + open]);
                put(&mut code, &chars[at + open..close], '_');
                code.extend(&chars[close..end]);
            }
        }
        at = end.map_or(at + 1, |(end, _)| end);
    }
    code
}

fn put(code: &mut String, chars: &[char], filler: char) {
    code.extend(chars.iter().map(|c| if *c == '\n' { '\n' } else { filler }));
}

enum Token {
    Comment,
    Quoted,
}

/// The end of a comment, string or character that begins here.
fn token_end(chars: &[char], at: usize) -> Option<(usize, Token)> {
    let inside_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match &chars[at..] {
        ['/', '/', ..] => Some((line_end(chars, at), Token::Comment)),
        ['/', '*', ..] => Some((block_end(chars, at), Token::Comment)),
        ['"', ..] => Some((string_end(chars, at + 1), Token::Quoted)),
        ['r', '"' | '#', ..] if !inside_word => raw_end(chars, at + 1).map(|end| (end, Token::Quoted)),
        ['b' | 'c', 'r', '"' | '#', ..] if !inside_word => {
            raw_end(chars, at + 2).map(|end| (end, Token::Quoted))
        }
        ['\'', '\\', ..] => Some((character_end(chars, at + 2), Token::Quoted)),
        // A lifetime has no second quote two characters later.
        ['\'', _, '\'', ..] => Some((at + 3, Token::Quoted)),
        _ => None,
    }
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |length| at + length)
}

fn block_end(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match &chars[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// From the first `#` or quote after the `r`; `None` for a raw identifier.
fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + hashes) != Some(&'"') {
        return None;
    }
    let close: String = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    Some(find(chars, at + hashes + 1, &close).map_or(chars.len(), |end| end + close.len()))
}

fn character_end(chars: &[char], at: usize) -> usize {
    chars.iter().enumerate().skip(at + 1).find(|(_, c)| **c == '\'').map_or(chars.len(), |(end, _)| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(cover(text), expected);
    }

    #[test]
    fn comments_are_blanked_to_their_end() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */ d */ e", "a                   e");
        check("a /* b\nc */ d", "a     \n     d");
    }

    #[test]
    fn string_contents_are_covered() {
        check(r#"x("a // \" b") y"#, r#"x("_________") y"#);
        check("x(r#\"a \" b\"#) y", "x(r#\"______#) y");
        check("b\"ab\" br\"cd\"", "b\"__\" br\"__\"");
        check("\"\" x", "\"\" x");
        check("\"a \nb\"", "\"__\n_\"");
    }

    #[test]
    fn characters_are_not_lifetimes() {
        check("f::<'a>('\"', '\\'', '{', 'b')", "f::<'a>('_', '__', '_', '_')");
    }

    #[test]
    fn raw_identifiers_are_code() {
        check("r#type \"x\"", "r#type \"_\"");
    }

    fn tests_of(text: &str) -> Vec<bool> {
        let source = Source::new("crates/a/src/a.rs", text);
        (0..text.lines().count()).map(|line| source.is_test(line)).collect()
    }

    #[test]
    fn an_item_under_cfg_test_is_test_code() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() { \"}\" }\n}\nfn c() {}\n";
        assert_eq!(tests_of(text), [false, true, true, true, true, true, false]);
        assert_eq!(tests_of("#[cfg(test)]\nuse a::{b, c};\nfn d() {}\n"), [true, true, false]);
        assert_eq!(tests_of("#[cfg(not(test))]\nfn d() {}\n"), [false, false]);
        assert_eq!(tests_of("#[cfg(feature = \"x\")]\nfn d() {}\n"), [false, false]);
    }

    #[test]
    fn test_folders_are_test_code() {
        assert!(Source::new("crates/a/tests/b.rs", "").is_test(0));
        assert!(!Source::new("crates/a/src/b.rs", "").is_test(0));
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("(unsafe {", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
    }
}
