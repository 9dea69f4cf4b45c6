//! Everything that knows text: rendering and tokenizing before a job is queued, detokenizing and
//! stop strings after.
//!
//! Invariant: nothing here touches an array. What one client does or fails to do costs its own
//! request: events wait in that request's own channel, which its token limit bounds.

mod gauges;
mod handle;
mod info;
mod keeper;
mod ledger;
mod line;
mod loads;
mod model;
mod narrator;
mod sessions;
mod start;
mod stream;
mod turns;

pub use handle::{Handle, StartError};
pub use info::{Health, ModelInfo, RequestInfo, RequestState, SessionInfo, SessionSeen, Stats};
pub use keeper::Isolation;
pub use model::ModelSource;
pub use start::{start, start_isolated};
pub use stream::EventStream;
