//! Ollama's API below `/api`.
//!
//! Invariant: nothing here changes which models are served, or reads a file.

pub mod chat;
pub mod embed;
pub mod generate;
mod load;
pub mod manage;
pub mod models;
mod served;
