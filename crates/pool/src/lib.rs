//! Which of several models are loaded, within one memory budget.
//!
//! A request takes a [`Lease`] of its model before anything else and keeps it until its answer has ended. A model without a
//! lease may be unloaded to make room; one with a lease never is. [`Table`] decides, without time, threads and models of its
//! own; [`Pool`] carries its decisions out.
//!
//! Invariants: no engine, no HTTP. One table under one lock owns every state. The bytes of models that are loaded, being
//! loaded or being unloaded are never more than the budget. N requests for a model that is not loaded cause one load.

mod pool;
mod table;

pub use pool::{Lease, Loadable, Pool, PoolSettings};
pub use table::{Action, Arrival, MemoryUse, ModelId, Policy, Refusal, Residence, State, Table, WaiterId};
