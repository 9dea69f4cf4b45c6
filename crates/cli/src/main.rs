//! The `omnibus` binary: the server, terminal chat, and tools.
//!
//! Invariant: every flag is a row in `settings/table/`; every command a row of [`command_table::COMMANDS`].

mod args;
mod batch;
mod bench;
mod cluster;
mod command_name;
mod command_table;
mod commands;
mod completion_output;
mod docs;
mod embedded;
mod engine_process;
mod environment;
mod error;
mod gguf;
mod launch;
mod libmlx;
mod log;
mod model;
mod output;
mod progress;
mod prompt_file;
mod reload_signal;
mod replay;
mod server_client;
mod service;
mod serving;
mod settings;
mod stop_signals;
mod tips;
mod wrap;

use std::process::ExitCode;

fn main() -> ExitCode {
    libmlx::restore_environment();
    if std::env::args_os().nth(1).is_some_and(|word| word == engine_process::SUBCOMMAND) {
        return engine_process::run().unwrap_or_else(|error| output::error(&error));
    }
    if std::env::args_os().nth(1).is_some_and(|word| word == cluster::FOLLOWER_SUBCOMMAND) {
        return cluster::follow_input().unwrap_or_else(|error| output::error(&error));
    }
    let args = match args::parse(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => return output::usage(&error),
    };
    match commands::run(&args) {
        Ok(code) => code,
        Err(error) => output::error(&error),
    }
}
