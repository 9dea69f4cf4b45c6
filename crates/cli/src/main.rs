//! One binary: the server, a terminal conversation, and the tools around them.
//!
//! Invariant: every flag is a row of [`settings::SETTINGS`]; every command a row of [`commands::COMMANDS`].

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
    let asked = match usage::parse(std::env::args_os()) {
        Ok(asked) => asked,
        Err(error) => return output::usage(&error),
    };
    match commands::run(&asked) {
        Ok(code) => code,
        Err(error) => output::error(&error),
    }
}
