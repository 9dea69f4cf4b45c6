//! Tests of the binary with the embedded model: processes, sockets, exit codes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod adapters;
#[path = "../../../server/tests/http/client.rs"]
#[allow(dead_code)]
mod client;
mod commands;
mod folders;
#[path = "../../../server/tests/http/hostile.rs"]
mod hostile;
mod hub;
#[path = "../../../hub/tests/hub/server.rs"]
#[allow(dead_code)]
mod hub_server;
mod isolation;
mod logging;
mod messages;
mod pictures;
mod process;
mod recordings;
mod scripted_model;
mod serving;
mod stopping;
mod structured;
mod tool_calls;
