//! The types of each API, read strictly and written plainly.
//!
//! Invariant: the only place that knows how an API spells things. Nothing here knows the engine.

pub mod chat;
pub mod completions;
pub mod error;
pub mod fields;
pub mod generation;
pub mod json;
pub mod logprobs;
pub mod messages;
pub mod models;
pub mod requests;
pub mod sessions;
pub mod tokenize;
pub mod tools;
pub mod usage;
