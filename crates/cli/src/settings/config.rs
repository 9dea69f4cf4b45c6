//! The typed configuration that commands read, in groups.

use std::path::PathBuf;

use omnibus_engine::{Sampling, Settings as EngineSettings, StructuredOutput};
use omnibus_hub::Visibility;
use omnibus_offline::conversion::{Dtype, QuantMode, Recipe};
use omnibus_server::{AdapterUpdates, AllowedHosts, AllowedOrigins, ModelNames, RequestTemplates, RootPath};

use super::mcp::McpSettings;
use super::model_table::ModelTable;
use super::report::ReportSettings;
use super::shown::ShownSetting;
use crate::replay::Pace;
use crate::service::ServiceSettings;

/// All settings. A command reads the groups that it has settings in.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The server's address, keys and limits.
    pub listen: Listen,
    /// The running server that a command reads.
    pub client: ClientSettings,
    /// Whether an agent is started.
    pub launch: LaunchAction,
    /// The service that is installed or shown.
    pub service: ServiceSettings,
    /// When `replay` sends requests.
    pub replay: Pace,
    /// Files of `batch`.
    pub batch: BatchSettings,
    /// The model directory or name.
    pub model: Option<String>,
    /// The served names of the model.
    pub served_names: Vec<String>,
    /// Models beside it.
    pub pool: PoolConfig,
    /// Engine settings.
    pub engine: EngineSettings,
    /// The engine process.
    pub isolation: IsolationSettings,
    /// Log output.
    pub log: Log,
    /// The prompt and sampling of `generate` and `chat`.
    pub prompt: Prompt,
    /// Benchmark settings.
    pub bench: BenchSettings,
    /// Settings of the engine benchmark.
    pub engine_bench: EngineBenchSettings,
    /// What the benchmark of speculative decoding measures.
    pub speculation_bench: SpeculationBenchSettings,
    /// Settings of reports.
    pub report: ReportSettings,
    /// Settings of conversions.
    pub conversion: ConversionSettings,
    /// Settings of `perplexity`.
    pub perplexity: PerplexitySettings,
    /// Simulation settings.
    pub sim: SimSettings,
    /// Format of results.
    pub output: Output,
    /// Whether to print statistics.
    pub verbosity: Verbosity,
    /// MCP servers.
    pub mcp: McpSettings,
    /// Run the command, or print its settings.
    pub action: Action,
    /// What `doctor` checks.
    pub doctor: DoctorSettings,
    /// What `models` lists.
    pub models: ModelsSubject,
}

/// The server's address, keys and limits.
#[derive(Debug, Clone, Default)]
pub struct Listen {
    /// Address or host name to listen on.
    pub host: String,
    /// Port to listen on; 0 is any free port.
    pub port: u16,
    /// UNIX socket to listen on instead.
    pub uds: Option<PathBuf>,
    /// The prefix of paths that a proxy adds.
    pub root_path: RootPath,
    /// File of the certificate of TCP connections.
    pub tls_certificate: Option<PathBuf>,
    /// File of its key.
    pub tls_key: Option<PathBuf>,
    /// Hosts that requests may name, beside the server's own.
    pub allowed_hosts: AllowedHosts,
    /// Origins whose pages may use the server.
    pub allowed_origins: AllowedOrigins,
    /// API keys.
    pub keys: Vec<String>,
    /// File with more keys.
    pub key_file: Option<PathBuf>,
    /// File with prompts to compute before serving.
    pub warm_prompts: Option<PathBuf>,
    /// Largest request body, in bytes.
    pub body_bytes: usize,
    /// Seconds that a shutdown waits for running requests.
    pub shutdown_timeout_s: f64,
    /// Which model names are served where clients choose names of their own.
    pub model_names: ModelNames,
    /// Whether requests may have chat templates of their own.
    pub request_templates: RequestTemplates,
    /// Folder of what outlives the server.
    pub state_dir: Option<PathBuf>,
    /// Most bytes of files of batches in it.
    pub batch_bytes: u64,
    /// Requests of batches that run at a time.
    pub batch_width: usize,
    /// Whether clients may load and unload adapters.
    pub adapter_updates: AdapterUpdates,
    /// Hosts that URLs of media may name.
    pub media_domains: Vec<String>,
    /// Directories that they may name files of.
    pub media_directories: Vec<PathBuf>,
    /// By whose names `/metrics` has its metrics, beside ours.
    pub metrics_compat: MetricsCompat,
    /// The collector of traces.
    pub traces_endpoint: Option<String>,
    /// Folder of records of requests.
    pub record: Option<PathBuf>,
    /// Most bytes of that folder.
    pub record_bytes: u64,
    /// Most bytes of named adapters where they may.
    pub adapter_memory: u64,
    /// Whether there is a page at `/ui`.
    pub page: Page,
    /// What it shows of the settings.
    pub shown_settings: Vec<ShownSetting>,
}

/// Whether there is a page at `/ui`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Page {
    /// There is one. Its data needs a key, where there are keys.
    #[default]
    On,
    /// Its routes answer 404.
    Off,
}

/// Several models in one server.
#[derive(Debug, Clone, Default)]
pub struct PoolConfig {
    /// A directory whose directories are models.
    pub folder: Option<PathBuf>,
    /// Seconds that a model stays loaded after its last request.
    pub ttl_s: Option<f64>,
    /// Whether requests may name models on the hub.
    pub pull: PullPolicy,
    /// `[models.NAME]` of `omnibus.toml`.
    pub tables: Vec<ModelTable>,
}

/// Whether requests may name models on the hub, which are downloaded then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// They may not.
    #[default]
    Refused,
    /// They may.
    Allowed,
}

/// The running server that a command reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// Its URL, if one was given.
    pub url: Option<String>,
    /// Sent as a bearer token.
    pub key: Option<String>,
}

/// Files of `batch`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchSettings {
    /// The requests.
    pub input: Option<PathBuf>,
    /// Their results.
    pub output: Option<PathBuf>,
    /// Requests at a time.
    pub max_inflight: usize,
}

/// Whether an agent is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LaunchAction {
    /// It is.
    #[default]
    Start,
    /// What it would be given is printed.
    Print,
}

/// By whose names there are metrics beside ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MetricsCompat {
    /// Ours alone.
    #[default]
    Ours,
    /// vLLM's.
    Vllm,
}

/// The engine process.
#[derive(Debug, Clone, Default)]
pub struct IsolationSettings {
    /// Whether the engine has its own process.
    pub mode: EngineIsolation,
    /// Seconds without progress after which a busy engine process is restarted.
    pub watchdog_s: f64,
    /// Folder of the libmlx to load, whatever the device.
    pub folder: Option<PathBuf>,
    /// Folder of the libmlx to load for the CPU.
    pub cpu_folder: Option<PathBuf>,
    /// Folder of the libmlx to load for CUDA.
    pub cuda_folder: Option<PathBuf>,
    /// The machines that serve the model together.
    pub hostfile: Option<PathBuf>,
}

/// Whether the engine has its own process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EngineIsolation {
    /// The engine runs in a child process.
    #[default]
    Process,
    /// The engine runs in the server's process.
    InProcess,
}

/// Log output.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// Text or JSON.
    pub format: LogFormat,
    /// Which log lines are printed, in `tracing`'s filter syntax.
    pub filter: String,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Format of results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Output {
    /// Plain text.
    #[default]
    Text,
    /// JSON.
    Json,
}

/// Whether to print statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// Results only.
    #[default]
    Quiet,
    /// Speed and memory, on stderr.
    Verbose,
}

/// What `models` lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModelsSubject {
    /// The supported model architectures.
    #[default]
    Architectures,
    /// The formats of tool calls and reasoning.
    Formats,
}

/// Settings of `doctor`.
#[derive(Debug, Clone, Default)]
pub struct DoctorSettings {
    /// What it checks.
    pub subject: DoctorSubject,
    /// Sequences of a planned step.
    pub rows: Option<usize>,
    /// The Mac that is planned for.
    pub mac: Option<&'static omnibus_engine::Mac>,
    /// Seconds of the report's soak.
    pub soak_s: f64,
}

/// What `doctor` checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DoctorSubject {
    /// The machine and its software.
    #[default]
    Machine,
    /// GPU kernels.
    Kernels,
    /// The kernels of a decode step of this config, or of this preset.
    Plan(String),
    /// Everything, into a file that can be attached to an issue.
    Report(PathBuf),
}

/// Run the command, or print its settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Action {
    /// Run the command.
    #[default]
    Run,
    /// Print the settings.
    PrintConfig,
}

/// The prompt and sampling of `generate` and `chat`.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// `-` is stdin.
    pub text: Option<String>,
    /// The system prompt.
    pub system: Option<String>,
    /// Images before the prompt.
    pub images: Vec<PathBuf>,
    /// Videos before the prompt, after its images.
    pub videos: Vec<PathBuf>,
    /// Audio before the prompt, after its images and videos.
    pub audio: Vec<PathBuf>,
    /// Prompt cache file.
    pub cache_file: Option<PathBuf>,
    /// Chat message or raw text.
    pub format: PromptFormat,
    /// Most tokens of a completion.
    pub max_tokens: usize,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// What a completion must match.
    pub structured: Option<StructuredOutput>,
}

/// Chat message or raw text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PromptFormat {
    /// A user message, rendered by the chat template.
    #[default]
    Chat,
    /// Raw text that the model continues.
    Raw,
}

/// Benchmark settings.
#[derive(Debug, Clone, Default)]
pub struct BenchSettings {
    /// Base URL of the API: `http://…/v1`.
    pub url: String,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// The API to use.
    pub endpoint: Endpoint,
    /// The kind of prompts.
    pub dataset: Dataset,
    /// Number of requests.
    pub num_prompts: usize,
    /// Number of requests before the measurement.
    pub num_warmups: usize,
    /// Prompt length in words.
    pub input_len: usize,
    /// Most tokens of a completion.
    pub output_len: usize,
    /// When requests are sent.
    pub arrivals: Arrivals,
    /// Seed of prompts and arrivals.
    pub seed: u64,
    /// Sampling temperature.
    pub temperature: f64,
    /// Whether to generate past end tokens, up to `output_len`.
    pub ignore_eos: bool,
}

/// Settings of the engine benchmark.
#[derive(Debug, Clone, Default)]
pub struct EngineBenchSettings {
    /// A preset's name, or the path of a config.
    pub random_weights: Option<String>,
    /// Bits of the random weights, if they are quantized.
    pub quantize: Option<usize>,
    /// Numbers of sequences that decode at once.
    pub streams: Vec<usize>,
    /// Tokens of the longest prompt.
    pub context: usize,
    /// Tokens of the shortest, if they are not all equal.
    pub shortest_context: Option<usize>,
    /// Tokens of the prompts of the measurement of prefill, if there is one.
    pub prefill: Option<usize>,
    /// Decode steps to measure at least.
    pub steps: usize,
    /// Adapters of the second measurement of each number of streams; none without it.
    pub adapters: usize,
    /// Their rank.
    pub adapter_rank: usize,
    /// Percent of the draft tokens that are accepted at each position, in a further measurement of each number of streams; none
    /// without it.
    pub synthetic_acceptance: Vec<u8>,
    /// A file with answers that are given again.
    pub recorded: Option<PathBuf>,
    /// Seconds after which a case is given up.
    pub case_timeout_s: f64,
    /// What is measured.
    pub measured: Measured,
}

/// Settings of the benchmark of speculative decoding.
#[derive(Debug, Clone, Default)]
pub struct SpeculationBenchSettings {
    /// A file with prompts.
    pub prompts: Option<PathBuf>,
    /// Numbers of requests at once.
    pub streams: Vec<usize>,
    /// How often each number is measured.
    pub rounds: usize,
}

/// What the engine benchmark measures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Measured {
    /// Steps of the engine's loop.
    #[default]
    Steps,
    /// Each kernel of one pass.
    Kernels,
}

/// What is converted, and how.
#[derive(Debug, Clone)]
pub struct ConversionSettings {
    /// The model.
    pub from: Option<String>,
    /// The directory to write.
    pub to: PathBuf,
    /// What becomes of the weights.
    pub change: WeightChange,
    /// The mode of quantized weights.
    pub mode: QuantMode,
    /// Bits of quantized weights; `None` is the mode's own number.
    pub bits: Option<i32>,
    /// Weights that share a scale; `None` is the mode's own number.
    pub group: Option<i32>,
    /// A mixed recipe.
    pub recipe: Option<Recipe>,
    /// A text whose activations say which weights matter.
    pub calibration: Option<PathBuf>,
    /// Sequences of it.
    pub calibration_sequences: usize,
    /// The type of floats; `None` is the config's.
    pub dtype: Option<Dtype>,
    /// The repository that the result is uploaded to.
    pub upload: Option<String>,
    /// Who sees a repository that an upload creates.
    pub visibility: Visibility,
}

impl Default for ConversionSettings {
    fn default() -> Self {
        let mode = QuantMode::Affine;
        Self {
            from: None,
            to: PathBuf::new(),
            change: WeightChange::Nothing,
            mode,
            bits: None,
            group: None,
            recipe: None,
            calibration: None,
            calibration_sequences: 0,
            dtype: None,
            upload: None,
            visibility: Visibility::Private,
        }
    }
}

/// What becomes of the weights in a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightChange {
    /// They stay packed, or floats.
    Nothing,
    /// Floats are packed.
    Quantize,
    /// Packed ones become floats.
    Dequantize,
}

impl WeightChange {
    /// The change, if no other was chosen before.
    pub fn with(self, change: Self) -> Result<Self, String> {
        match self == Self::Nothing {
            true => Ok(change),
            false => Err("choose either --quantize or --dequantize".to_owned()),
        }
    }
}

/// What is scored, and on which text.
#[derive(Debug, Clone, Default)]
pub struct PerplexitySettings {
    /// The text.
    pub data: Option<PathBuf>,
    /// Tokens of a sequence.
    pub sequence_length: usize,
    /// Most sequences.
    pub samples: Option<usize>,
    /// Sequences of a pass.
    pub batch: usize,
    /// The model that predictions are compared with.
    pub reference: Option<String>,
    /// Quantizations to score beside each model.
    pub quantizations: Vec<String>,
}

/// Simulation settings.
#[derive(Debug, Clone, Default)]
pub struct SimSettings {
    /// Cost model: a name, or a file with the learned cost model of a server.
    pub profile: String,
    /// Name of the workload.
    pub workload: String,
    /// Trace file to run instead of a workload.
    pub trace: Option<PathBuf>,
}

/// The API that a benchmark uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// `/chat/completions`
    #[default]
    Chat,
    /// `/completions`
    Completions,
}

/// The kind of prompts of a benchmark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dataset {
    /// Random words, with no common prefix.
    #[default]
    Random,
    /// Random words after a first half that all prompts share.
    SharedPrefix,
    /// Turns of conversations: each prompt begins with the one before it.
    Turns,
    /// Random words with a picture behind them.
    Media,
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Arrivals {
    /// Requests per second of a Poisson process; `None` sends as soon as `concurrency` allows.
    pub rate: Option<f64>,
    /// Most requests at once; `None` is no limit.
    pub concurrency: Option<usize>,
    /// Requests at each moment of that process; 0 counts as 1.
    pub burst: usize,
}
