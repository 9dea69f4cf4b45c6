//! Models, requests and sessions, as the API lists them.

use omnibus_core::HeldBlocks;
use serde::{Deserialize, Serialize};

use crate::load_progress::LoadProgress;
use crate::memory_plan::MemoryPlan;
use crate::sampling_parameter::SamplingDefaults;

/// One served model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The name it is listed under.
    pub id: String,
    /// Other names it is served under.
    pub aliases: Vec<String>,
    /// Whether it is loaded, and what is known of it then.
    pub state: ModelState,
    /// When it was loaded, in seconds since 1970; 0 before.
    pub created: u64,
    /// What makes it another model than its base, if it is an adapter.
    pub adapter: Option<AdapterInfo>,
}

/// Whether a model's engine runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "one for each model")]
pub enum ModelState {
    /// It was not asked to load.
    Unloaded,
    /// It reads its weights, and is so far.
    Loading(LoadProgress),
    /// It serves requests.
    Ready(ModelDetails),
    /// It could not be loaded.
    Failed {
        /// One line that names the file or the setting and what to do.
        why: String,
    },
}

/// What is known of a loaded model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelDetails {
    /// Its `model_type`.
    pub architecture: String,
    /// How its weights are quantized, as `4-bit`; `None` when they are not.
    pub quantization: Option<String>,
    /// Longest sequence it was trained for, in tokens.
    pub context_length: usize,
    /// Longest sequence that is served, in tokens.
    pub max_model_len: usize,
    /// Tokens in its vocabulary.
    pub vocab_size: usize,
    /// Width of its residual stream.
    pub hidden_size: usize,
    /// What it can do besides completing text.
    pub capabilities: Capabilities,
    /// How its memory is divided.
    pub memory: MemoryPlan,
    /// What requests have that leave sampling parameters out.
    pub sampling: SamplingDefaults,
    /// What it is for.
    pub task: ModelTask,
    /// What its prompts may hold.
    pub modalities: Vec<Modality>,
    /// A number that changes with its chat template; `None` without one.
    pub chat_template: Option<u128>,
}

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelTask {
    /// Text.
    Generate,
    /// Vectors of texts.
    Embed,
    /// Scores of pairs of texts.
    Score,
    /// Labels of texts.
    Classify,
    /// Labels of tokens.
    TokenClassify,
    /// Text of speech.
    Transcribe,
}

/// What a prompt may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    /// Text.
    Text,
    /// Images.
    Image,
    /// Sound.
    Audio,
}

/// What a model can do besides completing text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// It writes its reasoning apart from its answer.
    pub thinking: bool,
    /// Its tool calls are read.
    pub tools: bool,
    /// It has tokens to fill in the middle of a text.
    pub infill: bool,
}

/// An adapter beside a model's weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterInfo {
    /// Its directory.
    pub path: String,
    /// The model that it belongs to.
    pub parent: String,
}

impl ModelInfo {
    /// All names it is served under, the listed one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.id.as_str()).chain(self.aliases.iter().map(String::as_str))
    }

    /// What is known of it once it is loaded.
    pub fn details(&self) -> Option<&ModelDetails> {
        match &self.state {
            ModelState::Ready(details) => Some(details),
            ModelState::Unloaded | ModelState::Loading(_) | ModelState::Failed { .. } => None,
        }
    }
}

/// Whether a request has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestState {
    /// Before its first step.
    Queued,
    /// Its first step was launched.
    Running,
}

/// The part of a client's call that a request computes. The engine only hands it back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestOrigin {
    /// The response's id, as in its chunks.
    pub response_id: String,
    /// The client's call, such as an HTTP request.
    pub request_id: String,
    /// The choice's index in the response.
    pub index: usize,
}

/// One request that has not finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestInfo {
    /// As it was submitted.
    pub id: String,
    /// Its tenant.
    pub tenant: String,
    /// As it was submitted.
    pub origin: RequestOrigin,
    /// The model that serves it.
    pub model: String,
    /// Whether it has started.
    pub state: RequestState,
    /// Tokens in its prompt.
    pub prompt_tokens: usize,
    /// Tokens generated so far.
    pub generated_tokens: usize,
    /// Seconds since it was submitted.
    pub age_s: f64,
    /// Seconds until its time limit; negative where it has passed.
    pub deadline_s: Option<f64>,
    /// KV blocks that it holds, while a [`StepWatch`](crate::StepWatch) is read.
    pub blocks: Option<HeldBlocks>,
}

/// Whether the engine makes progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Steps complete, or there is nothing to do.
    pub alive: bool,
    /// An explanation.
    pub detail: String,
}

/// A conversation whose blocks are kept between its requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// [`crate::Request::session_id`].
    pub id: String,
    /// Leading tokens that its next request would find cached.
    pub tokens: usize,
    /// Blocks kept for it, over all layer groups.
    pub blocks: usize,
    /// Seconds since it was last used.
    pub idle_s: f64,
}
