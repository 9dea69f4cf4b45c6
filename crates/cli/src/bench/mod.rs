//! Benchmarks: load on a server with an OpenAI API, and simulations.
//!
//! Invariant: measures as a client does, over HTTP only. `sim` measures nothing.

mod client;
mod load;
mod prompts;
mod sim;
mod summary;

pub use load::measure;
pub use sim::{Simulation, simulate};
pub use summary::Summary;
