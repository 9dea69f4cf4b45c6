//! Every setting. The flag, the variable, the key in `omnibus.toml`, `--help` and docs/cli.md are
//! all made from this.

mod engine;
mod generation;
mod load;
mod model;
mod network;
mod output;
mod simulation;

use super::{Setting, Value};
use crate::commands::Name;

/// In the order in which they are shown.
const SECTIONS: &[&[Setting]] = &[
    network::SETTINGS,
    model::SETTINGS,
    engine::SETTINGS,
    generation::SETTINGS,
    load::SETTINGS,
    simulation::SETTINGS,
    output::SETTINGS,
];

/// Every setting.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().copied().flatten()
}

const SERVE: &[Name] = &[Name::Serve];
const ENGINE: &[Name] = &[Name::Serve, Name::Generate, Name::Chat, Name::CachePrompt];
/// All that are given one prompt.
const PROMPT: &[Name] = &[Name::Generate, Name::CachePrompt];
const WORDS: &[Name] = &[Name::Generate, Name::Chat];
/// All that have to do with `--cache-dir`.
const CACHED: &[Name] = &[Name::Serve, Name::Generate, Name::Chat, Name::CacheList, Name::CacheRemove];
const BENCH: &[Name] = &[Name::BenchServe];
const SIM: &[Name] = &[Name::BenchSim];
const TRAFFIC: &[Name] = &[Name::BenchServe, Name::BenchSim];
const SCHEDULING: &[Name] = &[Name::Serve, Name::BenchSim];
const STEPS: &[Name] = &[Name::Serve, Name::Generate, Name::Chat, Name::CachePrompt, Name::BenchSim];
const JSON: &[Name] = &[Name::Models, Name::Doctor, Name::CacheList, Name::BenchServe, Name::BenchSim];

const MAX: u64 = i32::MAX as u64;

/// Of a setting in milliseconds.
fn microseconds(value: &Value) -> u64 {
    (value.number() * 1e3).round() as u64
}
