//! `cargo xtask check`: everything CI runs, fastest failures first.
//!
//! Formatting and tidy need no build. Clippy needs no machine code, and the shim for macOS needs what clippy's build
//! scripts generate. Pages from the binary come after the tests, when its dependencies are built.

use std::time::Instant;

use crate::process::{cargo, run as finish};
use crate::{cuda_kernels, docs, macos_shim, tidy};

struct Step {
    name: &'static str,
    run: fn() -> Result<(), String>,
}

const STEPS: &[Step] = &[
    Step { name: "cargo fmt", run: || finish(cargo(&["fmt", "--all", "--check"])) },
    Step { name: "tidy", run: || tidy::run(&[]) },
    Step { name: "clippy", run: clippy },
    Step { name: "macos-shim", run: || macos_shim::run(&[]) },
    Step { name: "cargo test --workspace", run: tests },
    Step { name: "cuda-kernels", run: || cuda_kernels::run(&[]) },
    Step { name: "docs --check", run: || docs::run(&["--check".to_owned()]) },
    Step { name: "cargo doc", run: rustdoc },
];

/// Runs every step, up to the first that fails.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("takes no arguments, not `{argument}`"));
    }
    let begun = Instant::now();
    for step in STEPS {
        let since = Instant::now();
        println!("== {}", step.name);
        (step.run)()?;
        println!("== {}: {:.1} s", step.name, since.elapsed().as_secs_f64());
    }
    println!("== all {} steps passed: {:.1} s", STEPS.len(), begun.elapsed().as_secs_f64());
    Ok(())
}

fn clippy() -> Result<(), String> {
    finish(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn tests() -> Result<(), String> {
    cuda_kernels::forget()?;
    finish(cargo(&["test", "--workspace"]))
}

fn rustdoc() -> Result<(), String> {
    let mut doc = cargo(&["doc", "--no-deps", "--workspace"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    finish(doc)
}
