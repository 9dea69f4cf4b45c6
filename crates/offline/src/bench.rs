//! Benchmarks of the engine without a front: token ids in, times of steps out.
//!
//! Invariant: the loop is the server's, with its scheduler, runner and sampler. Times are taken where the loop reports, on
//! its own thread.

mod adapters;
mod kernel_times;
mod limits;
mod measured;
mod recorded;
mod soak;
mod work;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use omnibus_core::random::Rng;
use omnibus_engine::{
    ModelSource, Settings, Speculation, StartError, Stats, TokenEngine, TokenReport, TokenRequest,
    TokenUpdate, choose_device,
};
pub use omnibus_model::RandomWeights;
use omnibus_model::Source;

pub use adapters::AdapterLoad;
pub use kernel_times::{KernelShare, PassProfile, ProfiledPass, measure_kernels};
pub use limits::{DeviceLimits, measure_limits};
pub use measured::{Decode, HostSplit, MemoryUse, Prefill};
pub use recorded::{RecordedLoad, RecordedRun, Recording};
pub use soak::{Soak, SoakLoad, SoakPart};
pub use work::{ModelWork, StepWork};

use adapters::RandomAdapters;
use measured::StepReport;
use work::CacheFormat;

/// Full steps after the last stream has begun that are not measured: the first ones compile kernels and fill caches.
const WARM_UP_STEPS: usize = 16;
/// Statistics come at intervals, and the host's split needs two: most steps that are added to wait for them.
const MORE_STEPS: usize = 2000;
/// Prompts of a measurement of prefill; one more comes first and is not measured.
const PREFILLS: usize = 3;
/// How long cancelled requests may take to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(60);

/// The model of a benchmark.
#[derive(Debug, Clone)]
pub enum BenchModel {
    /// A model's files.
    Stored(ModelSource),
    /// Random weights of a config.
    Random(RandomWeights),
}

/// Streams that decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLoad {
    /// Sequences in each step.
    pub streams: usize,
    /// Tokens of the longest prompt.
    pub context: usize,
    /// Tokens of the shortest; the others lie evenly between.
    pub shortest: usize,
    /// Steps to measure at least.
    pub steps: usize,
    /// Whether each stream has one of the adapters.
    pub adapted: Adapted,
    /// Whether they may have draft tokens.
    pub speculation: Speculation,
}

impl DecodeLoad {
    /// Tokens of a stream's prompt.
    fn prompt(&self, stream: usize) -> usize {
        let spread = self.context.saturating_sub(self.shortest);
        self.context - spread * stream / self.streams.saturating_sub(1).max(1)
    }
}

/// Whether streams have adapters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Adapted {
    /// None has one.
    #[default]
    No,
    /// Each has one; they take them in turn.
    Yes,
}

/// An engine that runs benchmarks.
pub struct BenchEngine {
    engine: TokenEngine,
    reports: Receiver<TokenReport>,
    work: ModelWork,
    rng: Rng,
    /// Removed in the end.
    _adapters: RandomAdapters,
}

impl BenchEngine {
    /// Loads the model in this process, with random adapters.
    pub fn start(
        model: &BenchModel,
        mut settings: Settings,
        adapters: AdapterLoad,
    ) -> Result<Self, StartError> {
        let source = match model {
            BenchModel::Stored(source) => source.files(),
            BenchModel::Random(random) => Source::Random(random.clone()),
        };
        let config = match model {
            BenchModel::Random(random) => random.clone(),
            // Random weights of the same config have the same sizes.
            BenchModel::Stored(_) => sizes_of(&source)?,
        };
        let (to_us, reports) = channel();
        let cache = match settings.kv_bits {
            Some(bits) => CacheFormat::Packed { bits, group_size: settings.kv_group_size },
            None => CacheFormat::Float(settings.device),
        };
        choose_device(settings.device)?;
        let adapters = RandomAdapters::write(&config, adapters)?;
        settings.adapters = adapters.named();
        let engine = TokenEngine::start(source, settings, move |report| to_us.send(report).is_ok())?;
        let work = ModelWork::of(&config, engine.memory().weights_bytes, cache)?;
        Ok(Self { engine, reports, work, rng: Rng::new(0), _adapters: adapters })
    }

    /// What steps of this model read and compute.
    pub fn work(&self) -> &ModelWork {
        &self.work
    }

    /// Bytes of the weights in memory.
    pub fn weights_bytes(&self) -> u64 {
        self.engine.memory().weights_bytes
    }

    /// The name of the architecture, and how the weights are packed.
    pub fn architecture(&self) -> (&str, Option<&str>) {
        self.engine.architecture()
    }

    /// Measures steps in which every stream decodes. Fails with the reason if the streams do not get there in time.
    pub fn decode(&mut self, load: DecodeLoad, timeout: Duration) -> Result<Decode, String> {
        mlx::memory::reset_peak_memory();
        let room = self.engine.max_model_len().saturating_sub(load.context);
        let adapters = match load.adapted {
            Adapted::No => Vec::new(),
            Adapted::Yes => self.engine.adapters(),
        };
        let adapter = |stream: usize| stream.checked_rem(adapters.len()).map_or(0, |index| adapters[index]);
        let jobs = (0..load.streams).map(|stream| {
            let request = TokenRequest {
                prompt: self.random_tokens(load.prompt(stream).max(1)),
                max_new_tokens: room,
                adapter: adapter(stream),
                speculation: load.speculation,
                ..TokenRequest::default()
            };
            self.submit(request)
        });
        let jobs = jobs.collect::<Result<BTreeSet<_>, _>>()?;
        let watched = self.watch(&jobs, load, Instant::now() + timeout);
        let ended = self.cancel(&jobs);
        let (steps, stats) = watched?;
        ended?;
        Ok(Decode::of(load, self.work.layers(), &steps, &stats))
    }

    /// Measures the time to the first token of prompts of so many tokens, one after the other. Each is computed in full.
    pub fn prefill(&mut self, tokens: usize, timeout: Duration) -> Result<Prefill, String> {
        mlx::memory::reset_peak_memory();
        let deadline = Instant::now() + timeout;
        let (mut seconds, mut stats) = (Vec::new(), Vec::new());
        for number in 0..=PREFILLS {
            let begun = Instant::now();
            let prompt = self.random_tokens(tokens.max(1));
            let speculation = Speculation::Off;
            let job = self.submit(TokenRequest {
                prompt,
                max_new_tokens: 1,
                speculation,
                ..TokenRequest::default()
            })?;
            let took = (self.first_token(job, deadline, &mut stats)? - begun).as_secs_f64();
            match number {
                0 => stats.clear(),
                _ => seconds.push(took),
            }
        }
        Ok(Prefill::of(tokens, &seconds, &stats))
    }

    fn submit(&mut self, request: TokenRequest) -> Result<u64, String> {
        self.engine.submit(request).map_err(|failure| failure.to_string())
    }

    fn random_tokens(&mut self, count: usize) -> Vec<u32> {
        let vocab = self.engine.vocab_size().max(1) as u64;
        (0..count).map(|_| self.rng.below(vocab) as u32).collect()
    }

    fn next(&self, deadline: Instant) -> Result<TokenReport, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.reports.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => "it took too long".to_owned(),
            RecvTimeoutError::Disconnected => "the engine's loop has ended".to_owned(),
        })
    }

    /// The full steps after the warm-up, and the statistics sent meanwhile.
    fn watch(
        &self,
        jobs: &BTreeSet<u64>,
        load: DecodeLoad,
        deadline: Instant,
    ) -> Result<(Vec<StepReport>, Vec<Stats>), String> {
        let mut begun = BTreeSet::new();
        let (mut full_steps, mut steps, mut stats) = (0, Vec::new(), Vec::new());
        loop {
            let TokenReport { at, updates, stats: latest } = self.next(deadline).map_err(|why| {
                let begun = begun.len();
                format!("{why}: {begun} of {} streams decode, {full_steps} full steps", load.streams)
            })?;
            let (mut answered, mut tokens) = (BTreeSet::new(), 0);
            for (request, update) in updates.into_iter().filter(|(request, _)| jobs.contains(request)) {
                match update {
                    TokenUpdate::Token => {
                        tokens += 1;
                        answered.insert(request);
                    }
                    TokenUpdate::Failed(failure) => return Err(failure.to_string()),
                    TokenUpdate::Finished => return Err(TOO_SHORT.to_owned()),
                    TokenUpdate::Started => {}
                }
            }
            let is_full = answered.len() == load.streams;
            begun.append(&mut answered);
            full_steps += usize::from(is_full);
            if full_steps <= WARM_UP_STEPS {
                continue;
            }
            steps.extend(is_full.then_some(StepReport { at, tokens }));
            stats.extend(latest);
            let done = steps.len() > load.steps && stats.len() > 1;
            if done || steps.len() > load.steps + MORE_STEPS {
                return Ok((steps, stats));
            }
        }
    }

    /// Waits for a request's first token. `stats`: where statistics go that are sent meanwhile.
    fn first_token(&self, wanted: u64, deadline: Instant, stats: &mut Vec<Stats>) -> Result<Instant, String> {
        loop {
            let TokenReport { at, updates, stats: latest } = self.next(deadline)?;
            stats.extend(latest);
            for (_, update) in updates.into_iter().filter(|(request, _)| *request == wanted) {
                match update {
                    TokenUpdate::Token => return Ok(at),
                    TokenUpdate::Failed(failure) => return Err(failure.to_string()),
                    TokenUpdate::Finished | TokenUpdate::Started => {}
                }
            }
        }
    }

    /// Ends requests, and waits until they have.
    fn cancel(&self, jobs: &BTreeSet<u64>) -> Result<(), String> {
        let cancelled = jobs.iter().try_for_each(|job| self.engine.cancel(*job));
        cancelled.map_err(|failure| failure.to_string())?;
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        loop {
            // Statistics come when a request ends.
            let report = self.next(deadline).map_err(|why| format!("cancelling: {why}"))?;
            let is_idle = |stats: Stats| stats.scheduler.running + stats.scheduler.queued == 0;
            if report.stats.is_some_and(is_idle) {
                return Ok(());
            }
        }
    }
}

const TOO_SHORT: &str = "a stream reached the longest sequence before all were measured; \
    raise --max-model-len or --kv-cache-memory, or lower --context or --streams";

/// A stored model's config as random weights, for their sizes.
fn sizes_of(source: &Source) -> Result<RandomWeights, StartError> {
    let config = serde_json::Value::Object(source.json("config.json").map_err(StartError::new)?);
    RandomWeights::new("config.json", &config.to_string(), None).map_err(StartError::new)
}
