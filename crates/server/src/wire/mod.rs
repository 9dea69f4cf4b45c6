//! The request and response types of each API.
//!
//! Invariant: the only place with an API's field names. Nothing here knows the engine.

pub mod adapters;
pub mod anthropic;
pub mod apply_template;
pub mod batches;
pub mod chat;
pub mod chat_thinking;
pub mod client_tools;
pub mod completions;
pub mod decisions;
pub mod energy;
pub mod error;
pub mod fields;
pub mod files;
pub mod form;
pub mod gateway;
pub mod generation;
pub mod infill;
pub mod input_grammar;
pub mod json;
pub mod key_usage;
pub mod kv;
pub mod kv_transfer;
pub mod logprobs;
pub mod mcp;
pub mod mcp_routes;
pub mod media;
pub mod messages;
pub mod models;
pub mod ollama;
mod pdf;
pub mod pooling;
pub mod requests;
pub mod responses;
pub mod samplers;
pub mod sessions;
pub mod stored_files;
pub mod structured;
pub mod timings;
pub mod tokenize;
pub mod tool_choice;
pub mod tools;
pub mod transcription;
pub mod usage;
pub mod verbosity;
pub mod web_search;
