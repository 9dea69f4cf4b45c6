//! `omnibus doctor --report FILE`: one file with what an issue about a machine needs.
//!
//! Each heading is in the file before its work begins: where the machine fails in the middle, the file says in what.
//!
//! Invariant: what is written goes through [`Private`], so that no home folder is in it.

mod file;
mod private;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use omnibus_offline::bench::{AdapterLoad, BenchEngine, Soak, SoakLoad};

use super::{doctor, doctor_kernels};
use crate::bench::{bench_model, engine_bench};
use crate::error::Error;
use crate::settings::{Config, EngineBenchSettings};
use crate::{libmlx, output};
use file::ReportFile;
use private::Private;

/// The model beside the embedded one, unless `--random-weights` names another: its weights take 1.2 GB.
const PRESET: &str = "qwen3-0.6b";
/// Numbers of streams whose steps are timed.
const STREAMS: [usize; 3] = [1, 4, 16];
/// Steps that are timed at least.
const STEPS: usize = 64;
/// Seconds after which a case is given up.
const CASE_TIMEOUT_S: f64 = 300.0;
/// Streams of the soak.
const SOAK_STREAMS: usize = 2;
/// The KV cache of the soak: prompts evict each other's blocks.
const SOAK_KV_BYTES: u64 = 256 << 20;
/// Requests of a soak at least.
const SOAK_REQUESTS: usize = 16;

/// Writes the report. Exit code 1 when a part of it failed; the file says which.
pub fn run(path: &Path, config: &Config) -> Result<ExitCode, Error> {
    let mut file = ReportFile::create(path, Private::of_this_user())?;
    let mut failed = Vec::new();
    let missing = libmlx::load(&config.isolation, config.engine.device).err();
    if !machine(&mut file, missing.as_ref())? {
        failed.push("machine");
    }
    if missing.is_none() {
        let preset = config.engine_bench.random_weights.as_deref().unwrap_or(PRESET);
        if !kernels(&mut file)? {
            failed.push("kernels");
        }
        for weights in [None, Some(preset)] {
            if !steps(&mut file, config, weights)? {
                failed.push("steps");
            }
        }
        if !soak(&mut file, config, preset)? {
            failed.push("soak");
        }
    }
    file.section("Result")?;
    file.text(&match failed.is_empty() {
        true => "Every part ran, and no check failed.".to_owned(),
        false => format!("Failed: {}.", failed.join(", ")),
    })?;
    output::line(format!("{} can be attached to an issue", path.display()));
    Ok(ExitCode::from(u8::from(!failed.is_empty())))
}

/// Whether models can run.
fn machine(file: &mut ReportFile, missing: Option<&libmlx::Problem>) -> Result<bool, Error> {
    file.section("Machine")?;
    let findings = doctor::findings(missing);
    let mut lines: Vec<String> = findings.iter().map(doctor::Finding::text).collect();
    lines.extend(system().map(|system| format!("system: {system}")));
    if missing.is_none() {
        let properties = omnibus_engine::device_properties().into_iter();
        lines.extend(properties.map(|(name, value)| format!("{name}: {value}")));
    }
    file.block(&lines.join("\n"))?;
    Ok(!findings.iter().any(doctor::Finding::is_broken))
}

/// The system's name, release and architecture, without the machine's name.
fn system() -> Option<String> {
    let output = Command::new("uname").arg("-srm").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether every kernel agrees with MLX's operations; also where there is no GPU.
fn kernels(file: &mut ReportFile) -> Result<bool, Error> {
    file.section("Kernels")?;
    let mut lines = Vec::new();
    match doctor_kernels::measure(|line| lines.push(line)) {
        Ok(table) => {
            file.block(&lines.join("\n"))?;
            Ok(!doctor_kernels::has_failures(&table.rows))
        }
        Err(error) if lines.is_empty() => {
            file.text(&format!("None were checked: {error}."))?;
            Ok(true)
        }
        Err(error) => {
            lines.push(error.to_string());
            file.block(&lines.join("\n"))?;
            Ok(false)
        }
    }
}

/// Whether steps were timed. `weights`: the preset or config; `None` is the embedded model.
fn steps(file: &mut ReportFile, config: &Config, weights: Option<&str>) -> Result<bool, Error> {
    file.section(&format!("Steps of {}", weights.unwrap_or("the embedded model")))?;
    match engine_bench(&bench_config(config, weights)) {
        Ok(results) => {
            file.text(&results.table())?;
            Ok(!results.is_failure())
        }
        Err(error) => {
            file.text(&format!("Failed: {error}."))?;
            Ok(false)
        }
    }
}

/// The settings of the benchmark of a model.
fn bench_config(config: &Config, weights: Option<&str>) -> Config {
    let EngineBenchSettings { context, quantize, .. } = config.engine_bench;
    let engine_bench = EngineBenchSettings {
        random_weights: weights.map(str::to_owned),
        quantize: weights.and(quantize),
        streams: STREAMS.to_vec(),
        context,
        prefill: Some(context),
        steps: STEPS,
        case_timeout_s: CASE_TIMEOUT_S,
        ..EngineBenchSettings::default()
    };
    Config { model: None, engine_bench, ..config.clone() }
}

/// Whether every request of the soak was answered.
fn soak(file: &mut ReportFile, config: &Config, weights: &str) -> Result<bool, Error> {
    let duration = Duration::from_secs_f64(config.doctor.soak_s);
    file.section(&format!("Soak of {weights}"))?;
    output::note(format!("two streams for {} s", duration.as_secs_f64()));
    match run_soak(&bench_config(config, Some(weights)), duration) {
        Ok(soak) => {
            file.text(&soak.table())?;
            file.text(&described(&soak))?;
            Ok(soak.failures.is_empty())
        }
        Err(error) => {
            file.text(&format!("Failed: {error}."))?;
            Ok(false)
        }
    }
}

fn run_soak(config: &Config, duration: Duration) -> Result<Soak, Error> {
    let settings = omnibus_engine::Settings {
        max_num_seqs: SOAK_STREAMS,
        kv_cache_memory: Some(SOAK_KV_BYTES),
        ..config.engine.clone()
    };
    let load = SoakLoad {
        streams: SOAK_STREAMS,
        context: config.engine_bench.context,
        duration,
        requests: SOAK_REQUESTS,
    };
    let engine = BenchEngine::start(&bench_model(config)?, settings, AdapterLoad::default());
    engine.map_err(Error::failed)?.soak(load).map_err(Error::failed)
}

fn described(soak: &Soak) -> String {
    let Soak { requests, cancelled, failures, longest_gap_ms, evicted_misses, preemptions, .. } = soak;
    let mut text = format!(
        "{requests} requests, {cancelled} of them cancelled, {} failed; {evicted_misses} prompts whose blocks had been \
         evicted, {preemptions} preemptions; the longest time without a report was {longest_gap_ms:.0} ms.",
        failures.len()
    );
    if let Some(first) = failures.first() {
        text += &format!(" The first failure: {first}");
    }
    text
}
