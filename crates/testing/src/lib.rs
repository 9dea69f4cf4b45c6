//! What the tests of several crates share. No crate uses it but in its tests.
//!
//! Invariant: no edge to a crate of ours, so that the tests of any crate can use it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail as they do, and say what they skip"
)]

pub mod client;
pub mod environment;
pub mod formulas;
pub mod hostile_pictures;
pub mod hostile_requests;
pub mod hub;
pub mod mcp;
pub mod mutate;
pub mod reference;
pub mod renderings;
pub mod tls;
