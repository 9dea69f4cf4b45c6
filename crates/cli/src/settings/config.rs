//! What the commands read: the settings, typed and in groups.

use std::path::PathBuf;

use omnibus_engine::{Sampling, Settings as EngineSettings};

/// Everything that was set. A command reads the groups it has settings in.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Where the server listens, and for whom.
    pub listen: Listen,
    /// The model of a command that has one.
    pub model: Option<String>,
    /// What the model is called.
    pub served_names: Vec<String>,
    /// What the engine is told.
    pub engine: EngineSettings,
    /// Where it runs.
    pub isolation: IsolationSettings,
    /// How diagnostics look.
    pub log: Log,
    /// A generation of ours.
    pub prompt: Prompt,
    /// A measurement.
    pub bench: BenchSettings,
    /// A simulation.
    pub sim: SimSettings,
    /// How results look.
    pub output: Output,
    /// Whether to say how it was.
    pub report: Report,
    /// Do the work, or only show the settings.
    pub purpose: Purpose,
}

/// Where the server listens, and for whom.
#[derive(Debug, Clone, Default)]
pub struct Listen {
    /// An address or a name.
    pub host: String,
    /// 0 is any that is free.
    pub port: u16,
    /// Who is let in.
    pub keys: Vec<String>,
    /// More of them, one a line.
    pub key_file: Option<PathBuf>,
    /// Prompts to compute before anybody asks.
    pub warm_prompts: Option<PathBuf>,
    /// Largest body.
    pub body_bytes: usize,
    /// How long a stop waits.
    pub shutdown_timeout_s: f64,
}

/// Where an engine runs.
#[derive(Debug, Clone, Default)]
pub struct IsolationSettings {
    /// In which process.
    pub isolate: Isolate,
    /// A process that has work and says nothing for so long is started again.
    pub watchdog_s: f64,
    /// The libmlx to load in any case.
    pub folder: Option<PathBuf>,
    /// The libmlx to load for the CPU.
    pub cpu_folder: Option<PathBuf>,
    /// The libmlx to load for CUDA.
    pub cuda_folder: Option<PathBuf>,
}

/// In which process an engine runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolate {
    /// In one of its own.
    #[default]
    Process,
    /// In the server's.
    Nothing,
}

/// How diagnostics look.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// For people or for machines.
    pub format: LogFormat,
    /// Which of them.
    pub filter: String,
}

/// For people or for machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// How results look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// Whether to say how it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Report {
    /// Results alone.
    #[default]
    Quiet,
    /// Speed and memory, on stderr.
    Verbose,
}

/// Do the work, or only show the settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Do it.
    #[default]
    Work,
    /// Show them.
    PrintConfig,
}

/// A generation of ours.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// `-` is stdin.
    pub text: Option<String>,
    /// What comes before it.
    pub system: Option<String>,
    /// A computed prompt.
    pub cache_file: Option<PathBuf>,
    /// As a message, or as it is.
    pub form: PromptForm,
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// How they are drawn.
    pub sampling: Sampling,
}

/// As a message, or as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PromptForm {
    /// The chat template puts it into words.
    #[default]
    Chat,
    /// The model continues it.
    Raw,
}

/// A measurement.
#[derive(Debug, Clone, Default)]
pub struct BenchSettings {
    /// Where the API begins: `http://…/v1`.
    pub url: String,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// By which API.
    pub endpoint: Endpoint,
    /// What is asked.
    pub dataset: Dataset,
    /// How often.
    pub num_prompts: usize,
    /// Before anything is measured.
    pub num_warmups: usize,
    /// Words of a prompt.
    pub input_len: usize,
    /// Most tokens of an answer.
    pub output_len: usize,
    /// When.
    pub arrivals: Arrivals,
    /// Of prompts and arrivals.
    pub seed: u64,
    /// Sent as it is.
    pub temperature: f64,
    /// Ask for answers of full length.
    pub ignore_eos: bool,
}

/// A simulation.
#[derive(Debug, Clone, Default)]
pub struct SimSettings {
    /// How long steps take: a name, or a file with what a server has learned.
    pub profile: String,
    /// What is asked, and when.
    pub workload: String,
    /// Or a file that says so.
    pub trace: Option<PathBuf>,
}

/// By which API a measurement asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// `/chat/completions`
    #[default]
    Chat,
    /// `/completions`
    Completions,
}

/// What a measurement asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dataset {
    /// Words drawn at random, different from the first on.
    #[default]
    Random,
    /// The same, after a first half that all prompts share.
    SharedPrefix,
}

/// When requests arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Arrivals {
    /// Requests a second, in a Poisson process; `None` is as soon as there is room.
    pub rate: Option<f64>,
    /// Most at once; `None` is no limit.
    pub concurrency: Option<usize>,
}
