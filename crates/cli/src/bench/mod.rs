//! Load on a server that speaks OpenAI's API, and how it bore it.
//!
//! Invariant: measures from outside, with nothing but what any client sees; or, in `sim`, does not measure at all.

mod client;
mod load;
mod prompts;
mod random;
mod sim;
mod summary;

pub use load::measure;
pub use sim::{Simulation, simulate};
pub use summary::Summary;
