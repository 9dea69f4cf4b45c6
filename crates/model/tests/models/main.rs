//! Models as a whole: golden logits, published configs, broken directories, memory.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod adapters;
mod audio;
mod conversion;
mod cores;
mod docs;
mod draft_heads;
mod embedders;
mod environment;
mod expert_memory;
mod gguf;
mod golden;
mod kv_bits;
mod loading;
mod memory;
mod parity;
mod pictures;
mod quantized;
mod ranks;
mod real_configs;
mod recurrent;
mod roles;
mod sinks;
mod speech;
mod stages;
