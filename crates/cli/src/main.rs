//! One binary: the server, a terminal conversation, and the tools around them.
//!
//! Invariant: every flag is a row in `settings/table/`; every command a row of [`commands::COMMANDS`].

mod bench;
mod commands;
mod docs;
mod embedded;
mod error;
mod log;
mod model;
mod output;
mod settings;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == commands::engine::WORD) {
        return commands::engine::run().unwrap_or_else(|error| output::error(&error));
    }
    let asked = match usage::parse(std::env::args_os()) {
        Ok(asked) => asked,
        Err(error) => return output::usage(&error),
    };
    match commands::run(&asked) {
        Ok(code) => code,
        Err(error) => output::error(&error),
    }
}
