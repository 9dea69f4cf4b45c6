//! Integration tests of engines that may run beside each other. Tests of process-wide counters are in `../alone`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounded;
#[path = "../common/mod.rs"]
mod common;
mod disk;
mod energy;
mod equal_bits;
mod expert_memory;
mod hidden_states;
mod hostile_grammars;
mod live_steps;
mod logits;
mod logits_processors;
mod pooling;
mod prompt_files;
mod random_requests;
mod recurrent;
mod sampling;
mod schemas;
mod scoring;
mod serving;
mod speculation;
mod structured;
mod warm_up;
