//! Text that comes piece by piece, wrapped at spaces to a terminal's width.
//!
//! Invariant: nothing but a line break is added, and nothing but the spaces at one are left out.

use console::measure_text_width;

/// Wraps a text.
pub struct Wrap {
    /// Columns of the terminal.
    width: usize,
    /// The column where the next character stands.
    column: usize,
    /// Spaces that stand before the next word, unless that begins a line.
    spaces: String,
    /// The part of a word that has come, without what is printed of it already.
    word: String,
}

impl Wrap {
    /// To so many columns.
    pub fn new(width: usize) -> Self {
        Self { width: width.max(1), column: 0, spaces: String::new(), word: String::new() }
    }

    /// What is printed when a piece has come: all words of it that have ended.
    pub fn piece(&mut self, text: &str) -> String {
        let mut out = String::new();
        for character in text.chars() {
            match character {
                '\n' => {
                    self.end_word(&mut out);
                    // Spaces at the end of a line are nothing that is seen.
                    self.spaces.clear();
                    out.push('\n');
                    self.column = 0;
                }
                ' ' => {
                    self.end_word(&mut out);
                    self.spaces.push(' ');
                }
                other => {
                    self.word.push(other);
                    // A word that is wider than a line is broken by the terminal.
                    if measure_text_width(&self.word) >= self.width {
                        self.end_word(&mut out);
                    }
                }
            }
        }
        out
    }

    /// What is printed at the end.
    pub fn end(&mut self) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        out
    }

    fn end_word(&mut self, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let width = measure_text_width(&self.word);
        if self.column > 0 && self.column + self.spaces.len() + width > self.width {
            out.push('\n');
            self.column = 0;
            self.spaces.clear();
        }
        out.push_str(&self.spaces);
        out.push_str(&self.word);
        self.column += self.spaces.len() + width;
        // The terminal has broken a word that is wider than a line.
        while self.column > self.width {
            self.column -= self.width;
        }
        self.spaces.clear();
        self.word.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps a text that comes in pieces of every size.
    #[track_caller]
    fn check(width: usize, text: &str, expected: &str) {
        let characters: Vec<char> = text.chars().collect();
        for size in 1..=characters.len() {
            let mut wrap = Wrap::new(width);
            let mut out = String::new();
            for piece in characters.chunks(size) {
                out += &wrap.piece(&piece.iter().collect::<String>());
            }
            out += &wrap.end();
            assert_eq!(out, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn words_are_not_cut() {
        check(10, "the bus stops here", "the bus\nstops here");
        check(10, "a  b\n\n  c  ", "a  b\n\n  c");
        check(10, "exactly 10 and more", "exactly 10\nand more");
        check(5, "日本 x y", "日本\nx y");
    }

    #[test]
    fn a_word_that_is_wider_than_a_line_is_all_there() {
        let long = "x".repeat(25);
        let mut wrap = Wrap::new(10);
        let out = wrap.piece(&format!("a {long} b")) + &wrap.end();
        assert_eq!(out.replace('\n', " ").replace(' ', ""), format!("a{long}b"));
    }
}
