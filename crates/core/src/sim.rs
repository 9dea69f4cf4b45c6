//! The simulator: drives a [`crate::Scheduler`] through a scenario and checks after every step everything that must
//! hold.
//!
//! Everything comes from a [`Scenario`], so a failure is reproduced by running it again. A simulated device records
//! what was written where and checks every read; simulated clients check every event; tokens depend on the request and
//! the position only. What is wrong panics with a sentence.

mod clients;
mod cost;
mod device;
mod drafts;
mod machine;
mod report;
mod scenario;
mod script;
mod starvation;
mod tier;
mod workload;
mod world;

pub use crate::random::Rng;
pub use cost::{Cost, Price};
pub use drafts::MeasuredDrafts;
pub use machine::Machine;
pub use report::{Quantiles, Report};
pub use scenario::{Arrival, Audits, Faults, Interference, Overlap, Scenario, SpanKind, Tier};
pub use workload::Workload;

/// Runs a scenario to its end. Panics if an invariant is violated.
pub fn run(scenario: &Scenario) -> Report {
    world::World::new(scenario).run()
}
