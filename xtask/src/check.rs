//! `cargo xtask check [--clients]`: everything CI runs. What needs no build comes first, then the build of the tests, which is
//! clippy as well; the rest runs beside the tests as soon as it can.
//!
//! Compilers of GPU kernels need what their tests write. Rustdoc runs for macOS, where it needs no more than clippy has made. With
//! `--clients` comes what needs the built server and package registries: the soak and the tests of client libraries.

use std::process::Command;
use std::time::Instant;

use crate::jobs::{self, Finished, Job};
use crate::process::{cargo, own, python, run as finish};
use crate::test_programs::{build, examples, print_times, programs, width};
use crate::{kernel_texts, paths, tidy};

/// Minutes of the soak beside the tests.
const SOAK_MINUTES: &str = "1";

/// Clients of three APIs; nightly runs all of them.
const CLIENTS: &str = "claude_code codex opencode";

/// Runs every step, up to the first that fails.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let clients = match arguments {
        [] => Vec::new(),
        [option] if option == "--clients" => client_jobs()?,
        _ => return Err(format!("takes --clients or nothing, not `{}`", arguments.join(" "))),
    };
    let begun = Instant::now();
    println!("== cargo fmt");
    finish(cargo(&["fmt", "--all", "--check"]))?;
    println!("== tidy");
    tidy::run(&[])?;
    kernel_texts::forget()?;
    let build = build()?.then(|built| after_build(built, clients));
    let finished = jobs::run(vec![build], width())?;
    print_times(&finished);
    println!("== all {} steps passed: {:.1} s", finished.len() + 2, begun.elapsed().as_secs_f64());
    Ok(())
}

fn after_build(build: &Finished, clients: Vec<Job>) -> Result<Vec<Job>, String> {
    let (cuda, metal) = (own(&["cuda-kernels"])?, own(&["metal-kernels"])?);
    let mut programs = programs(build, &[])?.into_iter();
    // The first writes what is compiled.
    let kernels = vec![Job::new("cuda-kernels", cuda), Job::new("metal-kernels", metal)];
    let gpu = programs.next().map(|gpu| gpu.then(|_| Ok(kernels)));
    let mut jobs: Vec<Job> = gpu.into_iter().collect();
    // What takes a core for long does not come last.
    jobs.extend(clients);
    jobs.insert(2.min(jobs.len()), Job::cargo("clippy and rustdoc for macOS", own(&["macos"])?));
    jobs.extend(programs);
    jobs.push(examples(&[])?);
    Ok(jobs)
}

/// What calls the server that the tests have built.
fn client_jobs() -> Result<Vec<Job>, String> {
    let server = paths::target()?.join("debug").join("omnibus");
    let mut soak = python();
    soak.args(["bench/soak.py", "--minutes", SOAK_MINUTES]).env("OMNIBUS", &server);
    let suite = |name: &str| {
        let mut command = Command::new(paths::root().join(name));
        command.arg(&server).current_dir(paths::root());
        Job::new(name, command)
    };
    let mut clients = suite("tests/clients/run.sh");
    clients.command.env("CLIENTS", CLIENTS);
    Ok(vec![Job::new("soak", soak), suite("tests/sdk/run.sh"), clients])
}
