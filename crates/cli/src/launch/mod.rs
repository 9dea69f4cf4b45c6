//! Starts a coding agent with this server as its model: [`agents::AGENTS`] has one row per agent.
//!
//! Invariant: an agent is configured by variables and flags of its own process. No file of the user is written or changed.

pub mod agents;
pub mod print;
pub mod process;
pub mod server;
pub mod target;
