//! Tests of the binary with the embedded model: processes, sockets, exit codes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod access;
mod adapters;
mod batch;
mod commands;
mod decisions;
mod deployed;
mod drafts;
mod embedded_facts;
#[path = "../../../engine/tests/common/draft_model.rs"]
mod first_layers;
mod folders;
mod gguf;
#[allow(dead_code)]
#[path = "../../../gguf/tests/it/writer.rs"]
mod gguf_writer;
mod hosts;
mod hub;
mod isolation;
mod keys;
mod kv_events;
mod kv_peers;
mod launching;
mod libmlx;
mod listing;
mod logging;
mod macs;
mod mcp;
mod mcp_loops;
mod messages;
mod model_pool;
mod ollama;
mod open_files;
mod pictures;
mod process;
mod ranks;
mod recordings;
mod replaying;
mod replicas;
mod reports;
mod request_extras;
mod scripted_model;
mod server_batches;
mod services;
mod serving;
mod stages;
mod stopping;
mod structured;
mod tls;
mod tool_calls;

use omnibus_testing::{client, hostile_requests as hostile, hub as hub_server};
