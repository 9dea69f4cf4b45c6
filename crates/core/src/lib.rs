//! Which sequences advance next, and in which blocks. Start at [`Scheduler::plan`].
//!
//! A step has four phases: [`Scheduler::plan`] decides, [`Scheduler::apply`] allocates blocks, the engine computes,
//! [`Scheduler::commit`] accounts for the outcome and returns events for clients. A second step may be launched before
//! the first is committed; its unknown input tokens are then samples of the first.
//!
//! A decode step may verify draft tokens, which the engine proposes ([`Scheduler::offer_drafts`]). A plan then asks
//! for several `samples`, the outcome holds the accepted tokens, and `commit` frees the blocks after the last of them.
//! A recurrent state is rolled back without a copy: while drafts are verified, the sequence has a state slot for each
//! sample, the engine writes the state after the `i`-th sampled position into the `i`-th slot, and `commit` keeps the slot
//! of the last accepted token. With one sample this is the usual update in place.
//!
//! Invariant: no clock, no files, no arrays, no text, no randomness, no threads. Time arrives as an argument,
//! so a whole day of traffic is a unit test: see [`sim`].

mod block_pool;
mod cost;
mod drafting;
mod event;
mod kv_cache;
mod outcome;
mod padding;
mod plan;
mod prefix;
pub mod random;
mod request;
mod scheduler;
mod sequence;
mod settings;
pub mod sim;
mod spans;
pub mod statistic;
mod stats;
mod step_time;

pub use cost::{
    CostModel, DraftCost, DraftLoad, RowCurve, StepCost, StepLoad, Transfer, TransferCost, TransferCosts,
};
pub use drafting::{DRAFT_KINDS, DRAFT_POSITIONS, DraftKind, DraftOffer, DraftPolicy, DraftWork};
pub use event::{Event, Failure, FinishReason};
pub use kv_cache::{CacheEvent, StoredBlock};
pub use outcome::{AcceptedTokens, Outcome, SequenceOutput, Stop};
pub use padding::Padding;
pub use plan::{
    Allocation, BlockCopy, CacheMiss, CachedBlock, Plan, PlanId, Preempted, PreemptionMode, PrefixLookup,
    ScheduledSequence, TokenSource,
};
pub use request::{Class, Goal, Rejection, Request, SequenceId, Tick, Token};
pub use scheduler::{HeldBlocks, OffloadTier, RemotePrompt, Scheduler};
pub use sequence::HoldReason;
pub use settings::{
    CacheEvents, CacheGroup, LatencyTargets, Offload, PreemptionPolicy, PrefixCache, Schedule, Settings,
    StageLimits, StaticBatch, StepLimits, SwapSettings, Tuning,
};
pub use stats::{CacheMisses, DraftPosition, GroupStats, STATISTICS, SessionInfo, Stats};
pub use step_time::StepTime;
