//! Integration tests, in one program: it is linked once, and its tests share the cores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod chat_templates;
mod common;
mod limits;
mod reference;
