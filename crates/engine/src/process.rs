//! The engine in a process of its own: the socket's messages, and the engine's side.
//!
//! Invariant: the front's side is `supervisor`. Both are the same binary, so the messages have no versions.

mod child;
pub(crate) mod wire;

pub use child::{EngineExit, run_engine};
