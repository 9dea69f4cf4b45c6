//! The engine in a process of its own: what crosses the socket, and the side that computes.
//!
//! Invariant: the front's side is `front::keeper`. Both are the same binary, so the messages have no versions.

mod child;
pub(crate) mod wire;

pub use child::{Ended, run_engine};
