//! The parser's place in the tokens of a template.

use std::sync::Arc;

use crate::ast::Name;
use crate::lexer::{SyntaxError, Token};

pub(crate) type Parsed<T> = Result<T, SyntaxError>;

pub(crate) struct Parser {
    pub tokens: Vec<(Token, u32)>,
    pub at: usize,
    pub nesting: usize,
    /// How deep tags and brackets may nest.
    pub max_nesting: usize,
    pub loops: usize,
    pub mentions: Mentions,
}

/// Which of the names that change how a macro may be called were seen in its body.
#[derive(Default, Clone, Copy)]
pub(crate) struct Mentions {
    pub varargs: bool,
    pub kwargs: bool,
}

impl Parser {
    pub fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    pub fn peek_after(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    pub fn line(&self) -> u32 {
        self.tokens[self.at].1
    }

    pub fn next(&mut self) -> Token {
        let token = self.tokens[self.at].0.clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    pub fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(SyntaxError { line: self.line(), message: message.into() })
    }

    pub fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(found) if &**found == word)
    }

    pub fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(symbol);
        if found {
            self.next();
        }
        found
    }

    pub fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    pub fn expect_symbol(&mut self, symbol: &str) -> Parsed<()> {
        if self.take_symbol(symbol) {
            Ok(())
        } else {
            self.fail(format!("expected '{symbol}'{}", self.found()))
        }
    }

    pub fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.take_word(word) { Ok(()) } else { self.fail(format!("expected '{word}'{}", self.found())) }
    }

    pub fn found(&self) -> String {
        match self.peek() {
            Token::Name(name) => format!(", found '{name}'"),
            Token::Symbol(symbol) => format!(", found '{symbol}'"),
            Token::BlockEnd | Token::OutputEnd => ", found the end of the tag".to_owned(),
            Token::End => ", found the end of the template".to_owned(),
            _ => String::new(),
        }
    }

    pub fn name(&mut self) -> Parsed<Name> {
        match self.peek() {
            Token::Name(name) => {
                let name = Arc::clone(name);
                self.next();
                Ok(name)
            }
            _ => self.fail(format!("expected a name{}", self.found())),
        }
    }

    pub fn block_end(&mut self) -> Parsed<()> {
        match self.peek() {
            Token::BlockEnd => {
                self.next();
                Ok(())
            }
            _ => self.fail(format!("expected the end of the tag{}", self.found())),
        }
    }

    /// Runs `parse` one level descend.
    pub fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting == self.max_nesting {
            let most = self.max_nesting;
            return self.fail(format!("tags and brackets nest more than {most} deep"));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }
}
