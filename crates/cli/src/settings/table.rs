//! The table of settings. Flags, variables, keys in `omnibus.toml`, `--help` and docs/cli.md are all
//! generated from it.

mod access;
mod batch;
mod client;
mod conversion;
mod doctor;
mod energy;
mod engine;
mod engine_bench;
mod generation;
mod grammar;
mod load;
mod mcp;
mod model;
mod network;
mod observation;
mod output;
mod parallel;
mod perplexity;
mod report;
mod samplers;
mod service;
mod simulation;
mod speculation_bench;

use super::{Config, Setting, Value};
use crate::command_name::CommandName;

/// The sections, in the order of `--help`.
const SECTIONS: &[&[Setting]] = &[
    network::SETTINGS,
    access::SETTINGS,
    client::SETTINGS,
    batch::SETTINGS,
    mcp::SETTINGS,
    model::SETTINGS,
    engine::SETTINGS,
    parallel::SETTINGS,
    generation::SETTINGS,
    samplers::SETTINGS,
    grammar::SETTINGS,
    conversion::SETTINGS,
    perplexity::SETTINGS,
    load::SETTINGS,
    engine_bench::SETTINGS,
    speculation_bench::SETTINGS,
    energy::SETTINGS,
    report::SETTINGS,
    simulation::SETTINGS,
    doctor::SETTINGS,
    service::SETTINGS,
    observation::SETTINGS,
    output::SETTINGS,
];

/// Every setting.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().copied().flatten()
}

const SERVE: &[CommandName] = &[CommandName::Serve];
const LOCAL_ENGINE: &[CommandName] = &[
    CommandName::Run,
    CommandName::Serve,
    CommandName::Generate,
    CommandName::Chat,
    CommandName::CachePrompt,
    CommandName::BenchEngine,
    CommandName::BenchSpeculation,
    CommandName::BenchEnergy,
];
/// Commands that answer or measure with models that may be larger than memory.
const LARGE_MODEL: &[CommandName] = &[
    CommandName::Run,
    CommandName::Serve,
    CommandName::Generate,
    CommandName::Chat,
    CommandName::BenchEngine,
];
/// Commands that merge an adapter into a model.
const ADAPTED: &[CommandName] = &[
    CommandName::Generate,
    CommandName::Chat,
    CommandName::Run,
    CommandName::CachePrompt,
    CommandName::Convert,
];
/// Commands that run arrays on a device. They load libmlx, and so does one that looks at it.
const DEVICE: &[CommandName] = match LIBRARY {
    [computing @ .., CommandName::Doctor] => computing,
    all => all,
};
/// Commands that load libmlx.
const LIBRARY: &[CommandName] = &[
    CommandName::Run,
    CommandName::Serve,
    CommandName::Generate,
    CommandName::Chat,
    CommandName::CachePrompt,
    CommandName::BenchEngine,
    CommandName::BenchSpeculation,
    CommandName::BenchEnergy,
    CommandName::Convert,
    CommandName::Perplexity,
    CommandName::Plan,
    CommandName::Doctor,
];
/// Commands that render text.
const TEXT: &[CommandName] = &[
    CommandName::Serve,
    CommandName::Generate,
    CommandName::Chat,
    CommandName::Run,
    CommandName::CachePrompt,
];
/// Commands with a load of many requests on an engine of their own.
const LOADED_ENGINE: &[CommandName] = &[CommandName::Serve, CommandName::BenchEngine];
/// Commands that take one prompt.
const PROMPT: &[CommandName] = &[CommandName::Generate, CommandName::Run, CommandName::CachePrompt];
/// Commands that take files before a prompt.
const MEDIA: &[CommandName] = &[CommandName::Generate, CommandName::Run];
/// Commands that take a system prompt.
const SYSTEM: &[CommandName] =
    &[CommandName::Generate, CommandName::Chat, CommandName::Run, CommandName::CachePrompt];
/// Commands that read a running server.
const CLIENT: &[CommandName] =
    &[CommandName::Ps, CommandName::Launch, CommandName::Replay, CommandName::Batch];
const REPLAY: &[CommandName] = &[CommandName::Replay];
/// Commands that start MCP servers.
const MCP: &[CommandName] = &[CommandName::Serve, CommandName::McpList, CommandName::McpCall];
const MCP_LIST: &[CommandName] = &[CommandName::McpList];
const BATCH: &[CommandName] = &[CommandName::Batch];
const LAUNCH: &[CommandName] = &[CommandName::Launch];
const SERVICE: &[CommandName] = &[
    CommandName::ServiceInstall,
    CommandName::ServiceUninstall,
    CommandName::ServiceStatus,
    CommandName::ServiceLogs,
];
const SERVICE_INSTALL: &[CommandName] = &[CommandName::ServiceInstall];
const SERVICE_LOGS: &[CommandName] = &[CommandName::ServiceLogs];
/// Commands with a settings file of which every setting can be printed.
const CONFIGURED: &[CommandName] = &[
    CommandName::Serve,
    CommandName::Generate,
    CommandName::Chat,
    CommandName::Run,
    CommandName::BenchServe,
];
const SAMPLING: &[CommandName] = &[
    CommandName::Generate,
    CommandName::Chat,
    CommandName::Run,
    CommandName::BenchSpeculation,
    CommandName::BenchEnergy,
];
/// Commands that take requests with grammars.
const STRUCTURED: &[CommandName] =
    &[CommandName::Serve, CommandName::Generate, CommandName::Chat, CommandName::Run];
/// Commands that generate text. They draft tokens, and so does what one plans.
const GENERATING: &[CommandName] = match DRAFTED {
    [generating @ .., CommandName::Plan] => generating,
    all => all,
};
/// Commands that a draft model counts for.
const DRAFTED: &[CommandName] = &[
    CommandName::Serve,
    CommandName::Generate,
    CommandName::Chat,
    CommandName::Run,
    CommandName::BenchEngine,
    CommandName::BenchSpeculation,
    CommandName::BenchEnergy,
    CommandName::Plan,
];
/// Commands that use `--cache-dir`.
const CACHE_DIR: &[CommandName] = &[
    CommandName::Run,
    CommandName::Serve,
    CommandName::Generate,
    CommandName::Chat,
    CommandName::CacheList,
    CommandName::CacheRemove,
];
const CONVERT: &[CommandName] = &[CommandName::Convert];
const UPLOADING: &[CommandName] = &[CommandName::Convert, CommandName::Push];
/// Commands that quantize.
const QUANTIZED: &[CommandName] = &[CommandName::Convert, CommandName::Perplexity];
const PERPLEXITY: &[CommandName] = &[CommandName::Perplexity];
const BENCH: &[CommandName] = &[CommandName::BenchServe];
/// Benchmarks of a running server.
const CLIENT_BENCH: &[CommandName] = &[CommandName::BenchServe, CommandName::BenchPrefix];
const MODELS: &[CommandName] = &[CommandName::Models];
const DOCTOR: &[CommandName] = &[CommandName::Doctor];
/// Commands that plan for a Mac that is not there.
const PLANNED: &[CommandName] = &[CommandName::Plan, CommandName::Doctor];
const ENGINE_BENCH: &[CommandName] = &[CommandName::BenchEngine];
const SPECULATION_BENCH: &[CommandName] = &[CommandName::BenchSpeculation];
const ENERGY_BENCH: &[CommandName] = &[CommandName::BenchEnergy];
/// Commands that answer prompts in rounds.
const ROUNDS: &[CommandName] = &[CommandName::BenchSpeculation, CommandName::BenchEnergy];
/// Commands that report energy.
const ENERGY: &[CommandName] = &[CommandName::Serve, CommandName::BenchEnergy, CommandName::BenchReport];
const REPORT: &[CommandName] = &[CommandName::BenchReport];
const COMPARE: &[CommandName] = &[CommandName::BenchCompare];
/// Commands that make random weights.
const RANDOM_WEIGHTS: &[CommandName] = &[CommandName::BenchEngine, CommandName::Doctor];
const SIM: &[CommandName] = &[CommandName::BenchSim];
const LOAD: &[CommandName] =
    &[CommandName::BenchServe, CommandName::BenchPrefix, CommandName::BenchReport, CommandName::BenchSim];
/// Commands whose requests arrive by themselves.
const ARRIVALS: &[CommandName] = &[CommandName::BenchServe, CommandName::BenchReport, CommandName::BenchSim];
/// Commands that send load to servers.
const SENT_LOAD: &[CommandName] = &[CommandName::BenchServe, CommandName::BenchReport];
/// Commands that do not choose the number of sequences themselves.
const BATCH_SIZE: &[CommandName] = &[CommandName::Serve, CommandName::BenchSim];
const SCHEDULING: &[CommandName] = &[CommandName::Serve, CommandName::BenchEngine, CommandName::BenchSim];
const SCHEDULER_BASICS: &[CommandName] = &[
    CommandName::Run,
    CommandName::Serve,
    CommandName::Generate,
    CommandName::Chat,
    CommandName::CachePrompt,
    CommandName::BenchEngine,
    CommandName::BenchSim,
];
const JSON: &[CommandName] = &[
    CommandName::McpList,
    CommandName::McpCall,
    CommandName::Batch,
    CommandName::Ps,
    CommandName::Replay,
    CommandName::ListModels,
    CommandName::Perplexity,
    CommandName::Models,
    CommandName::Plan,
    CommandName::Doctor,
    CommandName::CacheList,
    CommandName::BenchServe,
    CommandName::BenchPrefix,
    CommandName::BenchEngine,
    CommandName::BenchSpeculation,
    CommandName::BenchEnergy,
    CommandName::BenchReport,
    CommandName::BenchCompare,
    CommandName::BenchSim,
];

const MAX: u64 = i32::MAX as u64;

/// Whether a command runs arrays on a device.
pub fn runs_on_device(command: CommandName) -> bool {
    DEVICE.contains(&command)
}

/// Sets what was chosen.
fn choose(config: &mut Config, value: &Value) -> Result<(), String> {
    (value.choice().apply)(config);
    Ok(())
}

/// The value of a setting in milliseconds, in microseconds.
fn microseconds(value: &Value) -> u64 {
    (value.number() * 1e3).round() as u64
}
