//! The engine in a process of its own: the socket's messages, and the engine's side.
//!
//! Invariant: the front's side is `supervisor`. Both are the same binary, so the messages have no versions.

mod child;
pub(crate) mod wire;

use std::time::Duration;

pub use child::{EngineExit, EngineRole, run_engine};

/// How long a process has to end by itself before it is killed: longer than a step takes, and short to a client whose stream
/// resumes in the next process.
pub(crate) const GRACE: Duration = Duration::from_secs(3);
