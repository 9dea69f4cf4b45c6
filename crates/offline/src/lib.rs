//! What needs a model or a scheduler, and no server: benchmarks of the engine's steps, conversions of checkpoints,
//! perplexity, simulation, and the table of GPU kernels.
//!
//! Invariant: nothing here serves requests; the engine does not depend on it.

pub mod bench;
pub mod conversion;
pub mod kernel_table;
mod pass_input;
pub mod perplexity;
pub mod planned_step;
pub mod sim;
