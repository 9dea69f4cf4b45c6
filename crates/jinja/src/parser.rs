//! Tokens to a tree: the grammar of Jinja with the tags that chat templates use.
//!
//! Invariant: brackets and tags nest no deeper than the limit, so neither this parser nor what walks the tree can
//! exhaust the stack. A template is one file: `include`, `import` and `extends` are refused.

mod cursor;
mod expressions;
mod statements;

use self::cursor::{Mentions, Parser};
use crate::ast::Statement;
use crate::lexer::{SyntaxError, Token, tokens};

/// The statements of a whole template, whose tags and brackets nest at most `max_nesting` deep.
pub(crate) fn parse(source: &str, max_nesting: usize) -> Result<Vec<Statement>, SyntaxError> {
    let tokens = tokens(source)?;
    let mut parser =
        Parser { tokens, at: 0, nesting: 0, max_nesting, loops: 0, mentions: Mentions::default() };
    let body = parser.body(&[])?;
    match parser.peek() {
        Token::End => Ok(body),
        _ => parser.fail("unexpected end tag"),
    }
}
