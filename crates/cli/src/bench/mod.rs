//! Benchmarks: load on a server with an OpenAI API, the engine in this process, and simulations.
//!
//! Invariant: load is measured as a client does, over HTTP only. `sim` measures nothing.

mod case;
mod client;
mod drafted;
mod energy;
mod engine;
mod load;
mod pictures;
mod prefix;
mod presets;
mod profile;
mod prompts;
mod recorded;
pub mod report;
mod round;
mod sim;
mod speculation;
mod summary;

pub use energy::run as measure_energy;
pub use engine::{bench_model, measure as engine_bench, random_weights_of, run as measure_engine};
pub use load::measure;
pub use prefix::measure as measure_prefix;
pub use presets::PRESETS;
pub use profile::{run as profile_kernels, tables as profile_tables};
pub use recorded::run as measure_recorded;
pub use sim::{Simulation, simulate};
pub use speculation::run as measure_speculation;
pub use summary::Summary;
