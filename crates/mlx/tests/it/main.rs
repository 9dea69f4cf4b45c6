//! Integration tests, in one program: it is linked once, and its tests share the cores.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;
mod cpu;
mod errors;
mod evaluation;
mod group;
mod threads;
mod values;
