//! Every command, in one table.

mod bench_serve;
mod bench_sim;
mod cache;
mod chat;
mod completions;
mod doctor;
pub mod engine;
mod engine_library;
mod generate;
mod models;
mod say;
mod serve;
mod warm;

use std::process::ExitCode;

use crate::error::Error;
use crate::output;
use crate::settings::{Purpose, Resolved};
use crate::usage::Asked;

/// Which command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// `omnibus serve`
    Serve,
    /// `omnibus generate`
    Generate,
    /// `omnibus chat`
    Chat,
    /// `omnibus models`
    Models,
    /// `omnibus doctor`
    Doctor,
    /// `omnibus bench serve`
    BenchServe,
    /// `omnibus bench sim`
    BenchSim,
    /// `omnibus cache prompt`
    CachePrompt,
    /// `omnibus cache ls`
    CacheList,
    /// `omnibus cache rm`
    CacheRemove,
    /// `omnibus completions`
    Completions,
}

/// One row of the table.
pub struct Spec {
    /// What the code calls it.
    pub name: Name,
    /// What a user types.
    pub path: &'static [&'static str],
    /// One sentence.
    pub about: &'static str,
    /// What it takes without a flag.
    pub argument: Option<Argument>,
}

/// What a command takes without a flag.
#[derive(Clone, Copy)]
pub struct Argument {
    /// What the code calls it.
    pub name: &'static str,
    /// What stands for it in help.
    pub placeholder: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Least and most of them.
    pub count: (usize, usize),
    /// All it can be; empty is anything.
    pub choices: &'static [&'static str],
}

/// Every command.
pub const COMMANDS: &[Spec] = &[
    Spec {
        name: Name::Serve,
        path: &["serve"],
        about: "Serve models over HTTP",
        argument: Some(Argument {
            name: "MODEL",
            placeholder: "MODEL",
            help: "Model directory. Without one, the model inside this binary.",
            count: (0, 64),
            choices: &[],
        }),
    },
    Spec { name: Name::Generate, path: &["generate"], about: "Answer one prompt", argument: None },
    Spec { name: Name::Chat, path: &["chat"], about: "Talk in the terminal", argument: None },
    Spec {
        name: Name::Models,
        path: &["models"],
        about: "List the architectures that can be served",
        argument: None,
    },
    Spec {
        name: Name::Doctor,
        path: &["doctor"],
        about: "Check this machine, and say what to do",
        argument: None,
    },
    Spec {
        name: Name::BenchServe,
        path: &["bench", "serve"],
        about: "Measure a server: latency percentiles and throughput",
        argument: None,
    },
    Spec {
        name: Name::BenchSim,
        path: &["bench", "sim"],
        about: "Compare schedules on simulated traffic and a machine that is only timed",
        argument: None,
    },
    Spec {
        name: Name::CachePrompt,
        path: &["cache", "prompt"],
        about: "Compute a prompt and write it to a file that `generate` and mlx-lm go on from",
        argument: None,
    },
    Spec {
        name: Name::CacheList,
        path: &["cache", "ls"],
        about: "List what --cache-dir keeps, by model",
        argument: None,
    },
    Spec {
        name: Name::CacheRemove,
        path: &["cache", "rm"],
        about: "Remove what --cache-dir keeps",
        argument: Some(Argument {
            name: "MODEL",
            placeholder: "MODEL",
            help: "As `cache ls` names it. Without one, of all models.",
            count: (0, 64),
            choices: &[],
        }),
    },
    Spec {
        name: Name::Completions,
        path: &["completions"],
        about: "Print a script that completes this command line in a shell",
        argument: Some(Argument {
            name: "SHELL",
            placeholder: "SHELL",
            help: "Which shell.",
            count: (1, 1),
            choices: &["bash", "elvish", "fish", "powershell", "zsh"],
        }),
    },
];

/// Does what was asked.
pub fn run(asked: &Asked) -> Result<ExitCode, Error> {
    let settled = asked.settle()?;
    if settled.config.purpose == Purpose::PrintConfig {
        output::line(settled.printed());
        return Ok(ExitCode::SUCCESS);
    }
    let Resolved { config, .. } = settled;
    match asked.name {
        Name::Serve => serve::run(config, &asked.arguments),
        Name::Generate => generate::run(&config),
        Name::Chat => chat::run(&config),
        Name::Models => models::run(&config),
        Name::Doctor => doctor::run(&config),
        Name::BenchServe => bench_serve::run(&config),
        Name::BenchSim => bench_sim::run(&config),
        Name::CachePrompt => cache::prompt(&config),
        Name::CacheList => cache::list(&config),
        Name::CacheRemove => cache::remove(&config, &asked.arguments),
        Name::Completions => completions::run(&asked.arguments),
    }
}
