//! Integration tests, in one program: it is linked once, and its tests share the cores.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod burst;
mod cache;
mod classes;
mod cost;
mod draft_tokens;
mod forced_tokens;
mod goals;
mod measured_drafts;
mod pace;
mod plans;
mod spans;
mod swap;
mod turns;
mod worlds;
