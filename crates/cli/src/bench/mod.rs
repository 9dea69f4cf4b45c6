//! Load on a server that speaks OpenAI's API, and how it bore it.
//!
//! Invariant: measures from outside, with nothing but what any client sees.

mod client;
mod load;
mod prompts;
mod random;
mod summary;

pub use load::measure;
pub use summary::Summary;
