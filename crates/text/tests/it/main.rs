//! Integration tests, in one program: it is linked once, and its tests share the cores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod deltas;
mod infill;
mod markers;
mod messages;
mod openai;
mod output_parser;
mod outputs;
mod published;
mod published_formats;
mod published_reasoning;
mod published_templates;
mod published_tool_calls;
mod reasoning_formats;
mod stop;
mod template_caps;
mod templates;
mod tokenizers;
mod tool_call_formats;
