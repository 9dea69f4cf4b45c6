//! The loop on the one thread that owns every array, and the handle through which everybody else
//! reaches it.
//!
//! ```text
//! Request ──front: render, tokenize, check──> Job ──worker: plan, launch, read──> Note
//! Event  <──front: detokenize, stop strings, usage─────────────────────────────── Note
//! ```
//!
//! Start at [`start`] and [`Handle::submit`]; the loop is `worker::run`. [`start_isolated`] puts it into a process of its
//! own, which runs [`run_engine`].
//!
//! Invariant: knows no HTTP and no wire format. A client that is slow, gone or wrong costs its own
//! request: the loop waits for nobody.

mod disk;
mod event;
mod fault;
mod front;
mod machine;
mod message;
mod process;
mod request;
mod sampler;
mod settings;
pub mod sim;
mod worker;

pub use disk::{CachedModel, DiskStats, cached_models, remove_cached_model};
pub use event::{Candidate, Event, Failure, FinishReason, StopMatch, TokenInfo, Usage};
#[doc(hidden)]
pub use fault::FaultPlan;
pub use front::{
    EventStream, Handle, Health, Isolation, ModelInfo, ModelSource, RequestInfo, RequestState, SessionInfo,
    SessionSeen, StartError, Stats, start, start_isolated,
};
pub use machine::{Gpu, Machine, MemoryLimit, machine};
pub use omnibus_core::{CacheMisses, GroupStats};
pub use omnibus_text::AddSpecial;
pub use process::{Ended, run_engine};
pub use request::{Chat, Input, Request, Sampling, Stop, TOP_LOGPROBS_MAX};
pub use settings::{
    AsyncScheduling, DeviceChoice, DiskSettings, PreemptionPolicy, PrefixCache, PromptCacheFile, Schedule,
    Settings, WarmUp,
};
pub use worker::{MemoryPlan, SwapStats};

/// Every architecture that can be served, with what is said about it in a list.
pub fn architectures() -> Vec<(&'static str, &'static str)> {
    omnibus_model::families::FAMILIES.iter().map(|family| (family.model_type, family.about)).collect()
}
