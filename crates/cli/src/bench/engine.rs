//! The engine's steps, measured in this process: decoding at several numbers of streams, and prefill.
//!
//! A share compares a time with the least that the device could take for the bytes read and the operations of the step.

use std::path::Path;
use std::time::{Duration, Instant};

use omnibus_engine::{Machine, Settings, machine};
use omnibus_offline::bench::{
    Adapted, AdapterLoad, BenchEngine, BenchModel, Decode, DecodeLoad, DeviceLimits, HostSplit, MemoryUse,
    Prefill, RandomWeights, StepWork, measure_limits,
};
use serde::Serialize;

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

/// A measurement beside the device's limit; or why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Case<T> {
    /// It was measured.
    Measured {
        /// What was measured.
        #[serde(flatten)]
        measured: T,
        /// Milliseconds that the device needs at least.
        limit_ms: f64,
        /// That over the measured time.
        share_of_limit: f64,
    },
    /// It failed.
    Failed {
        /// Sequences of a step, or tokens of a prompt.
        case: usize,
        /// Why.
        error: String,
    },
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
    let settings = settings(config);
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
    let (mut decode, mut adapted) = (Vec::new(), Vec::new());
    for streams in &bench.streams {
        let mut measure = |adapted| {
            let shortest = bench.shortest_context.unwrap_or(bench.context).min(bench.context);
            let (context, steps) = (bench.context, bench.steps);
            let load = DecodeLoad { streams: *streams, context, shortest, steps, adapted };
            let work = engine.work().decode(load.streams, (context + shortest) / 2);
            Case::of(load.streams, engine.decode(load, timeout), work, &limits)
        };
        let case = measure(Adapted::No);
        output::note(case.row());
        if adapters.count > 0 {
            let case = AdaptedCase::of(adapters, &case, measure(Adapted::Yes));
            output::note(case.row());
            adapted.push(case);
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

/// The engine's settings, with room for the streams.
fn settings(config: &Config) -> Settings {
    let most = config.engine_bench.streams.iter().copied().max().unwrap_or(1);
    Settings { max_num_seqs: most, max_queue: config.engine.max_queue.max(most), ..config.engine.clone() }
}

impl EngineBench {
    /// A Markdown table.
    pub fn table(&self) -> String {
        let head = "| case | ms | tokens/s | limit, ms | share | launches a layer | plan, ms | build, ms | dispatch, ms | wait, ms | memory, GB | peak, GB |";
        let rule = "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";
        let rows = self.decode.iter().map(Case::row).chain(self.adapted.iter().map(AdaptedCase::row));
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

/// What the table needs of a measurement.
pub trait Measured {
    /// `16 streams`, `prefill of 2048`.
    fn label(case: usize) -> &'static str;

    /// Name, milliseconds and tokens per second.
    fn times(&self) -> (String, f64, f64);

    fn host(&self) -> Option<HostSplit>;

    /// `None` where kernels are launched one by one.
    fn launches_per_layer(&self) -> Option<f64>;

    fn memory(&self) -> MemoryUse;
}

impl<T: Measured> Case<T> {
    fn of(case: usize, measured: Result<T, String>, work: StepWork, limits: &DeviceLimits) -> Self {
        match measured {
            Ok(measured) => {
                let limit_ms = 1e3 * work.limit_s(limits);
                let (_, ms, _) = measured.times();
                Self::Measured { measured, limit_ms, share_of_limit: limit_ms / ms.max(f64::MIN_POSITIVE) }
            }
            Err(error) => Self::Failed { case, error },
        }
    }

    /// A row of the table.
    fn row(&self) -> String {
        self.row_of("")
    }

    /// A row of the table with more words in its name.
    fn row_of(&self, more: &str) -> String {
        match self {
            Self::Measured { measured, limit_ms, share_of_limit } => {
                let (name, ms, rate) = measured.times();
                let host = measured.host().map_or("– | – | – | –".to_owned(), |host| {
                    let HostSplit { plan_ms, build_ms, dispatch_ms, wait_ms } = host;
                    format!("{plan_ms:.2} | {build_ms:.2} | {dispatch_ms:.2} | {wait_ms:.2}")
                });
                let launches = measured.launches_per_layer();
                let launches = launches.map_or("–".to_owned(), |launches| format!("{launches:.1}"));
                let MemoryUse { active_bytes, peak_bytes, .. } = measured.memory();
                let [active, peak] = [active_bytes, peak_bytes].map(|bytes| bytes as f64 / 1e9);
                format!(
                    "| {name}{more} | {ms:.2} | {rate:.0} | {limit_ms:.3} | {share_of_limit:.2} | {launches} | {host} | {active:.2} | {peak:.2} |"
                )
            }
            Self::Failed { case, error } => {
                format!(
                    "| {case} {}{more} | {error} | – | – | – | – | – | – | – | – | – | – |",
                    T::label(*case)
                )
            }
        }
    }
}

impl Measured for Decode {
    fn label(case: usize) -> &'static str {
        if case == 1 { "stream" } else { "streams" }
    }

    fn times(&self) -> (String, f64, f64) {
        let Self { streams, context, .. } = self;
        let name = format!("decode, {streams} {} at {context}", Self::label(*streams));
        (name, self.step_ms, self.tokens_per_s)
    }

    fn host(&self) -> Option<HostSplit> {
        self.host
    }

    fn launches_per_layer(&self) -> Option<f64> {
        self.launches_per_layer
    }

    fn memory(&self) -> MemoryUse {
        self.memory
    }
}

impl Measured for Prefill {
    fn label(_case: usize) -> &'static str {
        "tokens of prefill"
    }

    fn times(&self) -> (String, f64, f64) {
        (format!("prefill of {}", self.tokens), self.ms, self.tokens_per_s)
    }

    fn host(&self) -> Option<HostSplit> {
        self.host
    }

    fn launches_per_layer(&self) -> Option<f64> {
        None
    }

    fn memory(&self) -> MemoryUse {
        self.memory
    }
}
