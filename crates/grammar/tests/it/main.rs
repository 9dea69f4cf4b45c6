//! Integration tests, in one program: it is linked once, and its tests share the cores.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
mod matching;
mod schemas;
mod tool_calls;
