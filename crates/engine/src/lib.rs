//! The engine: a loop on the one thread that owns every array, and the handle that submits requests to it.
//!
//! ```text
//! Request ──front: render, tokenize, check──────> Job ──worker: plan, launch, read──> JobReport
//! Event  <──front: detokenize, stop strings, usage──────────────────────────────────── JobReport
//! ```
//!
//! Start at [`start()`] and [`Handle::submit`]; the loop is `worker::engine_loop`. [`start_isolated`] runs it in a process
//! of its own, whose main function is [`run_engine`]; `supervisor` restarts that process when it dies.
//!
//! Invariant: no HTTP and no wire formats. A slow, disconnected or faulty client costs its own request: the loop never
//! waits for a client.

mod alignment;
mod available_memory;
mod buffer_count;
mod cluster;
mod cluster_settings;
mod command_buffers;
mod device_memory;
mod digest;
mod disk;
mod energy;
mod error;
mod event;
mod fault;
mod floats;
mod frames;
mod front;
mod generation_config;
mod hidden;
mod info;
mod library;
mod live_steps;
mod load_progress;
mod log_span;
mod logits_processor;
mod machine;
mod media;
mod memory_plan;
mod memory_pressure;
mod memory_response;
mod message;
mod model_source;
mod not_enforced;
mod pid_file;
mod process;
mod request;
mod sampler;
mod sampling_parameter;
mod settings;
mod speculation;
mod start;
mod stats;
mod status;
mod step_record;
mod supervisor;
mod token_engine;
mod token_logits;
mod transcription;
mod whisper;
mod worker;

pub use alignment::{AlignedTokens, Alignment};
pub use buffer_count::BufferStats;
pub use cluster::{Cluster, FollowerPlace, Host, Reach, Secret, read_hosts, read_ring, run_follower};
pub use cluster_settings::divided_among;
pub use device_memory::mac::{MACS, Mac};
pub use disk::{CachedModel, cached_models, remove_cached_model};
pub use energy::{EnergySource, EnergyStats, EnergyUsage};
pub use error::{Failure, StartError, StartFailure};
pub use event::{
    CallEnding, Candidate, Delta, EncoderUsage, Event, FinishReason, MediaUsage, StopMatch, TokenInfo, Usage,
};
#[doc(hidden)]
pub use fault::FaultPlan;
pub use front::tokenizer_of;
pub use front::{Admission, EventStream, Generated, Handle};
pub use front::{Pooled, PoolingInput, PoolingPrompt, PoolingRequest, PoolingRun, TooLong};
pub use front::{Scoring, ScoringPrompt, ScoringRequest, ScoringRun};
pub use generation_config::GenerationConfig;
pub use hidden::{HiddenPositions, HiddenStates};
pub use info::{
    AdapterInfo, Capabilities, Health, Modality, ModelDetails, ModelInfo, ModelState, ModelTask, RequestInfo,
    RequestOrigin, RequestState, SessionInfo,
};
pub use library::{check_library, expected_library_version, library_is_loaded, library_path};
pub use live_steps::{StepWatch, WatchedSteps};
pub use load_progress::LoadProgress;
pub use logits_processor::{LogitsProcessor, LogitsProcessors, SequenceTokens};
pub use machine::{Gpu, Machine, device_properties, machine};
pub use media::{ByteBudget, MediaBytes, MediaItem, MediaSource, Reserved};
pub use memory_plan::{MemoryLimit, MemoryPlan, gigabytes};
pub use message::{BlockQuery, BlocksRefused};
pub use mlx::memory::{return_freed, return_large_blocks};
pub use model_source::ModelSource;
pub use omnibus_core::{CacheMisses, Class, DRAFT_POSITIONS, DraftPosition, GroupStats, HeldBlocks};
pub use omnibus_core::{random, statistic};
pub use omnibus_grammar::{Grammar, GrammarLimits, SchemaUse, Whitespace};
pub use omnibus_kv_events::{EventSettings, PublisherStats};
pub use omnibus_kv_peer::{PeerSettings, PeerState, PeerStats};
pub use omnibus_pooler::{
    Activation, Dimensions, Pooler, PoolingOutput, Similarity, Task, VectorLength, max_sim,
};
pub use omnibus_text::{
    AddSpecial, CallRule, ContentPart, CutSide, InputGrammar, MediaIndex, Message, Role, Tool, ToolArguments,
    ToolCall, ToolPlace, ToolResult,
};
pub use pid_file::{PidFile, UncleanShutdowns};
pub use process::{EngineExit, EngineRole, run_engine};
pub use request::{
    BadWords, CallLimit, Chat, Dry, Input, LOGPROB_TOKEN_IDS_MAX, OutputMode, ProgressReports, PromptEnd,
    ReasoningPlace, ReportedTokens, Request, SAMPLERS, SamplerKind, SamplerName, Sampling, Stop,
    StructuredOutput, ToolChoice,
};
pub use sampling_parameter::{SAMPLING_PARAMETERS, SamplingDefaults, SamplingParameter};
pub use settings::{
    AsyncScheduling, CpuActivations, DeviceChoice, DiskSettings, DraftPolicy, LongContext, NamedAdapter,
    PreemptionPolicy, PrefixCache, PromptCacheFile, ReplicaRole, Schedule, Settings, WarmUp, WiredLimit,
};
pub use speculation::{DraftOutcome, DraftSource, DraftUsage, Speculation, SpeculationSettings};
pub use start::{EngineHost, start, start_isolated, start_with, unloaded};
pub use stats::{
    DiskStats, ExpertStats, GrammarStats, LaunchStats, MediaStats, SCHEDULER_STATISTICS, STATISTICS,
    SchedulerStats, SessionStats, Stats, SwapStats,
};
pub use step_record::StepRecord;
pub use supervisor::Isolation;
pub use token_engine::{TokenEngine, TokenReport, TokenRequest, TokenUpdate};
pub use token_logits::TokenLogits;
pub use transcription::{
    Language, SpeechSegment, SpeechSummary, SpeechTask, SpeechTimes, SpeechWord, Transcription,
    TranscriptionEvent, TranscriptionStream, WindowQuality,
};
pub use worker::{PlannedMemory, choose_device, memory_for_models, plan_memory};

/// Every supported architecture, with a description for lists.
pub fn architectures() -> Vec<(&'static str, &'static str)> {
    omnibus_model::families::FAMILIES.iter().map(|family| (family.model_type, family.about)).collect()
}

/// The architectures that take pictures beside text.
pub fn architectures_with_pictures() -> Vec<&'static str> {
    omnibus_model::encoders::ENCODERS.iter().map(|family| family.model_type).collect()
}

/// The architectures whose models hear.
pub fn architectures_with_audio() -> Vec<&'static str> {
    omnibus_model::encoders::AUDIO_ENCODERS.iter().map(|family| family.model_type).collect()
}

/// Every tool call format, with its models.
pub fn tool_call_formats() -> Vec<(&'static str, &'static str)> {
    omnibus_text::TOOL_CALL_FORMATS.iter().map(|format| (format.name, format.models)).collect()
}

/// Every reasoning format, with its models.
pub fn reasoning_formats() -> Vec<(&'static str, &'static str)> {
    omnibus_text::REASONING_FORMATS.iter().map(|format| (format.name, format.models)).collect()
}

/// Sets an environment variable for libmlx, in this process and those it starts, unless it is set. For programs that have
/// started no thread yet; later it does nothing.
pub fn set_library_variable(name: &str, value: &str) {
    mlx::environment::set_default(name, value);
}

/// Gives an environment variable of this process a value, or none. For programs that have started no thread yet; later it does
/// nothing.
pub fn replace_variable(name: &str, value: Option<&std::ffi::OsStr>) {
    mlx::environment::replace(name, value);
}

/// Chooses the folder that compiled GPU programs are kept in and loaded from, which no other user can write to. For programs
/// that have started no thread yet; later it does nothing.
pub fn set_program_folder() {
    mlx::gpu::set_program_folder();
}
