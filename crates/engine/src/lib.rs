//! The loop on the one thread that owns every array, and the handle through which everybody else reaches it.

mod event;
mod request;

pub use event::{Candidate, Event, Failure, FinishReason, StopMatch, TokenInfo, Usage};
pub use request::{Chat, Input, Request, Sampling, Stop};
