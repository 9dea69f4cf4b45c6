//! The engine's steps, measured in this process: decoding at several numbers of streams, and prefill.
//!
//! A share compares a time with the least that the device could take for the bytes read and the operations of the step.

use std::path::Path;
use std::time::{Duration, Instant};

use omnibus_engine::{DraftOutcome, DraftSource, Machine, Settings, Speculation, machine};
use omnibus_offline::bench::{
    Adapted, AdapterLoad, BenchEngine, BenchModel, Decode, DecodeLoad, DeviceLimits, Prefill, RandomWeights,
    measure_limits,
};
use serde::Serialize;

use super::case::Case;
use super::drafted::DraftedCase;
use super::presets;
use crate::error::Error;
use crate::settings::{Config, EngineBenchSettings, Log};
use crate::{log, model, output};

/// The results, as `--json` prints them.
#[derive(Debug, Serialize)]
pub struct EngineBench {
    /// The model directory, the config or the preset.
    pub model: String,
    /// The `model_type`.
    pub architecture: String,
    /// How the weights are packed.
    pub quantization: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// What the device can do at best, measured before the model was loaded.
    pub limits: DeviceLimits,
    /// Bytes of the weights.
    pub weights_bytes: u64,
    /// Seconds to load or make them.
    pub load_s: f64,
    /// One for each number of streams.
    pub decode: Vec<Case<Decode>>,
    /// Decoding with an adapter for each stream, if that was measured.
    pub adapted: Vec<AdaptedCase>,
    /// Decoding with draft tokens of which chance accepts some, if that was measured.
    pub drafted: Vec<DraftedCase>,
    /// Prefill, if it was measured.
    pub prefill: Option<Case<Prefill>>,
}

/// Streams with adapters, beside the same streams without.
#[derive(Debug, Serialize)]
pub struct AdaptedCase {
    /// Adapters that the streams take in turn.
    pub adapters: usize,
    /// Their rank.
    pub rank: usize,
    /// The measurement.
    pub decode: Case<Decode>,
    /// Tokens per second over those without adapters, by the medians of the steps.
    pub speed_ratio: Option<f64>,
}

/// Installs the log, and runs the benchmark with a line on stderr after each case.
pub fn run(config: &Config) -> Result<EngineBench, Error> {
    // Warnings say which kernels and graphs are not used.
    log::install(&Log { filter: "warn".to_owned(), ..config.log.clone() });
    measure(config)
}

/// Runs the benchmark, with a line on stderr after each case.
pub fn measure(config: &Config) -> Result<EngineBench, Error> {
    let bench = &config.engine_bench;
    let bench_model = bench_model(config)?;
    let acceptance = bench.synthetic_acceptance.as_slice();
    let outcome = (!acceptance.is_empty()).then(|| DraftOutcome::Synthetic(acceptance.to_vec()));
    let settings = settings(config, outcome)?;
    let limits = measure_limits(settings.device).map_err(Error::failed)?;
    output::note(format!(
        "device: reads {:.0} GB/s, {:.2} TFLOP/s in {} products",
        limits.read_bytes_per_s / 1e9,
        limits.matmul_flops / 1e12,
        limits.matmul_dtype
    ));
    let begun = Instant::now();
    let adapters = AdapterLoad { count: bench.adapters, rank: bench.adapter_rank };
    let mut engine = BenchEngine::start(&bench_model, settings, adapters).map_err(Error::failed)?;
    let load_s = begun.elapsed().as_secs_f64();
    output::note(format!("{:.2} GB of weights in {load_s:.1} s", engine.weights_bytes() as f64 / 1e9));
    let timeout = Duration::from_secs_f64(bench.case_timeout_s);
    let (mut decode, mut adapted, mut drafted) = (Vec::new(), Vec::new(), Vec::new());
    for streams in &bench.streams {
        let mut measure = |adapted, speculation| {
            let shortest = bench.shortest_context.unwrap_or(bench.context).min(bench.context);
            let (context, steps) = (bench.context, bench.steps);
            let load = DecodeLoad { streams: *streams, context, shortest, steps, adapted, speculation };
            let work = engine.work().decode(load.streams, (context + shortest) / 2);
            Case::of(load.streams, engine.decode(load, timeout), work, &limits)
        };
        let case = measure(Adapted::No, Speculation::Off);
        output::note(case.row());
        if adapters.count > 0 {
            let case = AdaptedCase::of(adapters, &case, measure(Adapted::Yes, Speculation::Off));
            output::note(case.row());
            adapted.push(case);
        }
        if !acceptance.is_empty() {
            // The first time, the scheduler learns which drafts are accepted and what they cost. Both begin with the same context.
            let _learned = measure(Adapted::No, Speculation::Allowed);
            let case = DraftedCase::of(acceptance, &case, measure(Adapted::No, Speculation::Allowed));
            output::note(case.row());
            drafted.push(case);
        }
        decode.push(case);
    }
    let prefill = bench.prefill.map(|tokens| {
        let work = engine.work().prefill(tokens);
        let case = Case::of(tokens, engine.prefill(tokens, timeout), work, &limits);
        output::note(case.row());
        case
    });
    let (architecture, quantization) = engine.architecture();
    Ok(EngineBench {
        model: bench.random_weights.clone().or_else(|| config.model.clone()).unwrap_or_default(),
        architecture: architecture.to_owned(),
        quantization: quantization.map(str::to_owned),
        machine: machine(),
        limits,
        weights_bytes: engine.weights_bytes(),
        load_s,
        decode,
        adapted,
        drafted,
        prefill,
    })
}

/// Random weights of a preset or a config, or a stored model.
pub fn bench_model(config: &Config) -> Result<BenchModel, Error> {
    let EngineBenchSettings { random_weights, quantize, .. } = &config.engine_bench;
    let Some(name) = random_weights else {
        if quantize.is_some() {
            return Err(Error::usage("--quantize needs --random-weights"));
        }
        return Ok(BenchModel::Stored(model::source(config.model.as_deref(), &[])?));
    };
    random_weights_of("--random-weights", name, *quantize).map(BenchModel::Random)
}

/// Random weights of a preset or a config. `flag`: that named it.
pub fn random_weights_of(flag: &str, name: &str, quantize: Option<usize>) -> Result<RandomWeights, Error> {
    let text = match presets::config(name) {
        Some(text) => text.to_owned(),
        None => std::fs::read_to_string(config_path(name)).map_err(|error| {
            let names: Vec<&str> = presets::PRESETS.iter().map(|(name, _)| *name).collect();
            Error::usage(format!("{flag}: cannot read {name}: {error}; presets are {}", names.join(", ")))
        })?,
    };
    RandomWeights::new(name, &text, quantize).map_err(Error::failed)
}

/// The config file, or that of a model directory.
fn config_path(name: &str) -> std::path::PathBuf {
    let path = Path::new(name);
    if path.is_dir() { path.join("config.json") } else { path.to_owned() }
}

/// The engine's settings, with room for the streams. Without an outcome of draft tokens there are none.
pub fn settings(config: &Config, outcome: Option<DraftOutcome>) -> Result<Settings, Error> {
    let most = config.engine_bench.streams.iter().copied().max().unwrap_or(1);
    let mut settings = Settings {
        max_num_seqs: most,
        max_queue: config.engine.max_queue.max(most),
        ..config.engine.clone()
    };
    match outcome {
        None => settings.speculation.source = DraftSource::Off,
        Some(outcome) => {
            if settings.speculation.source == DraftSource::Auto && settings.speculation.draft_model.is_none()
            {
                settings.speculation.source = DraftSource::Ngram;
            }
            settings.speculation.outcome = outcome;
        }
    }
    model::with_local_draft(settings)
}

impl EngineBench {
    /// A Markdown table.
    pub fn table(&self) -> String {
        let head = "| case | ms | tokens/s | limit, ms | share | launches a layer | plan, ms | build, ms | dispatch, ms | wait, ms | memory, GB | peak, GB |";
        let rule = "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";
        let rows = self.decode.iter().map(Case::row).chain(self.adapted.iter().map(AdaptedCase::row));
        let rows = rows.chain(self.drafted.iter().map(DraftedCase::row));
        let rows = rows.chain(self.prefill.iter().map(Case::row));
        [head.to_owned(), rule.to_owned()].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    }

    /// Whether no case was measured.
    pub fn is_failure(&self) -> bool {
        let decode = self.decode.iter().all(|case| matches!(case, Case::Failed { .. }));
        decode && self.prefill.as_ref().is_none_or(|case| matches!(case, Case::Failed { .. }))
    }
}

impl AdaptedCase {
    fn of(adapters: AdapterLoad, base: &Case<Decode>, decode: Case<Decode>) -> Self {
        let speed_ratio = match (base, &decode) {
            (Case::Measured { measured: base, .. }, Case::Measured { measured, .. }) => {
                Some(base.step_ms / measured.step_ms.max(f64::MIN_POSITIVE))
            }
            _ => None,
        };
        Self { adapters: adapters.count, rank: adapters.rank, decode, speed_ratio }
    }

    /// A row of the table.
    fn row(&self) -> String {
        let Self { adapters, rank, .. } = self;
        let ratio =
            self.speed_ratio.map_or(String::new(), |ratio| format!(", {ratio:.2} of the speed without"));
        self.decode.row_of(&format!(", {adapters} adapters of rank {rank}{ratio}"))
    }
}
