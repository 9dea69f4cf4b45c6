//! Commands for contributors and CI: `cargo xtask COMMAND`.
//!
//! Invariant: uses the workspace from outside only: its files, its commands and the output of its binary.
// These commands print.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod clippy;
mod cuda_kernels;
mod dist;
mod docs;
mod environment;
mod jobs;
mod kernel_texts;
mod macos;
mod metal_kernels;
mod nightly;
mod paths;
mod process;
mod scripts;
mod test_programs;
mod tidy;
mod wheel;
mod zig;

use std::process::ExitCode;

/// One row of the table below.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "check",
        about: "everything CI runs, fastest failures first; --clients with client libraries and the soak",
        run: check::run,
    },
    Command {
        name: "test",
        about: "what `cargo test --workspace` runs, several programs at a time [ARGUMENT…]",
        run: test_programs::run,
    },
    Command {
        name: "nightly",
        about: "what takes too long for every change [--only STEP]… [--scale SHARE]",
        run: nightly::run,
    },
    Command { name: "tidy", about: "repository rules that a compiler cannot check", run: tidy::run },
    Command { name: "docs", about: "write the generated pages; --check only compares", run: docs::run },
    Command {
        name: "macos",
        about: "clippy and rustdoc for macOS on any machine, with a C++ compiler from a wheel",
        run: macos::run,
    },
    Command {
        name: "cuda-kernels",
        about: "compile the CUDA kernels that the tests wrote, with a compiler from a wheel",
        run: cuda_kernels::run,
    },
    Command {
        name: "metal-kernels",
        about: "compile the Metal kernels that the tests wrote as C++14 with address spaces",
        run: metal_kernels::run,
    },
    Command {
        name: "dist",
        about: "make what is published, in target/dist/out [--only NAME]…",
        run: dist::run,
    },
    Command { name: "fixtures", about: "run the reference programs again [NAME…]", run: scripts::fixtures },
    Command { name: "bench", about: "run a script of bench/: NAME [ARGUMENTS…]", run: scripts::bench },
    Command {
        name: "soak",
        about: "soak test: random traffic and crashes [--minutes N] [--seed N]",
        run: scripts::soak,
    },
    Command {
        name: "parity",
        about: "compare with the reference [--fixtures DIR] [--only NAME]… or --preprocess DIR",
        run: scripts::parity,
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    match (command.run)(&rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask {name}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let rows = COMMANDS.iter().map(|command| format!("  {:10} {}\n", command.name, command.about));
    format!("cargo xtask COMMAND\n{}", rows.collect::<String>())
}
