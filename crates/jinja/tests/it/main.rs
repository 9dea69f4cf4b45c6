//! Integration tests, in one program: it is linked once, and its tests share the cores.

mod chat_templates;
mod common;
#[path = "../../../../tests/environment.rs"]
mod environment;
mod limits;
mod reference;
mod renderings;
