//! A day of traffic in a millisecond: drives a [`crate::Scheduler`] through a made-up world and checks everything that
//! must hold after every step.
//!
//! Everything comes from a [`Scenario`], so a failure is replayed by running that again. A fake device remembers what
//! was written where and checks every read; simulated clients check every event; tokens depend on the request and
//! the position only. What is wrong panics with a sentence.

mod clients;
mod cost;
mod device;
mod machine;
mod report;
mod rng;
mod scenario;
mod script;
mod starvation;
mod tier;
mod workload;
mod world;

pub use cost::{Cost, Price};
pub use machine::Machine;
pub use report::{Quantiles, Report};
pub use rng::Rng;
pub use scenario::{Arrival, Audits, Faults, Interference, Overlap, Scenario};
pub use tier::Tier;
pub use workload::Workload;

/// Plays a scenario to its end. Panics if anything does not hold that must.
pub fn run(scenario: &Scenario) -> Report {
    world::World::new(scenario).run()
}
