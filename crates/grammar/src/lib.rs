//! Grammars of structured output: what they may hold, how they are compiled, and which tokens may follow.
//!
//! Start at [`Grammar`] and [`check`], which need no model; a [`Compiler`] belongs to a model's [`Vocabulary`] and makes
//! one [`Matcher`] per sequence. The grammar engine is llguidance.
//!
//! Invariants: nothing here knows arrays, HTTP or the scheduler. A grammar comes from a client and is hostile: each is
//! compiled and matched within [`GrammarLimits`] or is an error of one line. A matcher's state follows from its grammar
//! and the tokens that it accepted, so replaying them in another process gives the same masks and forced tokens.

mod cache;
mod compiled;
mod compiler;
mod error;
mod grammar;
mod lark;
mod limits;
mod mask;
mod matcher;
mod opening;
mod schema;
mod tools;
mod vocabulary;

pub use compiled::Compiled;
pub use compiler::Compiler;
pub use error::GrammarError;
pub use grammar::{Grammar, Whitespace, check};
pub use limits::GrammarLimits;
pub use mask::TokenMask;
pub use matcher::{Forced, MatchState, Matcher};
pub use opening::{Opening, Reasoning};
pub use schema::SchemaUse;
pub use tools::{CallCount, CallStart, INPUT, Tool, calls_or_answer, calls_or_text, tool_calls};
pub use vocabulary::Vocabulary;
