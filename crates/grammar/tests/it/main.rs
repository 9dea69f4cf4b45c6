//! Integration tests, in one program: it is linked once, and its tests share the cores.

mod common;
mod matching;
mod tool_calls;
