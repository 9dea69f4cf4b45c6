//! What follows a network whose hidden states are its output: pooling, dense layers, norms, scores and labels.
//!
//! Start at [`Pooler::read`]. sentence-transformers' `modules.json` decides, or the class that a checkpoint was saved from.
//!
//! Invariant: no edge to a crate of ours and no arrays: rows are float32 numbers. Files are untrusted: an error is one line
//! that names the file.

mod activation;
mod checkpoint;
mod class_heads;
mod error;
mod modules;
mod pooling;
mod prompts;
mod step;

use std::path::Path;

pub use activation::Activation;
pub use error::PoolerError;
pub use pooling::{PoolingMode, Rows};
pub use prompts::Prompts;
use serde_json::{Map, Value};
use step::Step;

/// What becomes of a text's hidden states.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooler {
    task: Task,
    pooling: Vec<PoolingMode>,
    prompts: Prompts,
    steps: Vec<Step>,
    max_tokens: Option<usize>,
    dimensions: Dimensions,
    source: PoolerSource,
}

/// What says how a model is pooled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoolerSource {
    /// `modules.json`.
    Modules,
    /// The class that its checkpoint was saved from.
    Class,
}

/// What a model is for, besides generating.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// One vector for each text.
    Embed,
    /// One score for each pair of texts.
    Score {
        /// From the head's number to the score.
        activation: Activation,
    },
    /// Probabilities of labels for each text.
    Classify {
        /// Their names, in order.
        labels: Vec<String>,
        /// From the head's numbers to probabilities.
        activation: Activation,
    },
    /// Probabilities of labels for each token.
    ClassifyTokens {
        /// Their names, in order.
        labels: Vec<String>,
    },
    /// One score for each pair of texts: the logit of a token behind them, less that of another.
    ScoreTokens {
        /// The token that says yes.
        yes: u32,
        /// The token that says no.
        no: Option<u32>,
        /// From the difference to the score.
        activation: Activation,
    },
}

/// To which widths vectors may be cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dimensions {
    /// To any.
    Any,
    /// To these, for which the model was trained (Matryoshka). Source: arXiv 2205.13147.
    Of(Vec<usize>),
}

impl Pooler {
    /// Reads the files of a model directory.
    pub fn read(directory: &Path) -> Result<Self, PoolerError> {
        let config = error::object(directory, "config.json")?.unwrap_or_default();
        let dimensions = Dimensions::read(&config);
        let mut pooler = match modules::read(directory)? {
            Some(pooler) => pooler,
            None => class_heads::read(directory, &config)?,
        };
        pooler.dimensions = dimensions;
        Ok(pooler)
    }

    /// That of a model without files of its own: a text's vector is the normalized state of its last token.
    pub fn of_generator() -> Self {
        Self::new(Task::Embed, vec![PoolingMode::Last], vec![Step::Normalize])
    }

    fn new(task: Task, pooling: Vec<PoolingMode>, steps: Vec<Step>) -> Self {
        let (prompts, max_tokens) = (Prompts::default(), None);
        let (dimensions, source) = (Dimensions::Any, PoolerSource::Class);
        Self { task, pooling, prompts, steps, max_tokens, dimensions, source }
    }

    /// Whether files of the model were written for this, and not only its class says how it is pooled.
    pub fn is_declared(&self) -> bool {
        self.source == PoolerSource::Modules
    }

    /// What the model is for.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Texts that stand before what is embedded.
    pub fn prompts(&self) -> &Prompts {
        &self.prompts
    }

    /// Most tokens of a text, where the model's files say so.
    pub fn max_tokens(&self) -> Option<usize> {
        self.max_tokens
    }

    /// To which widths vectors may be cut.
    pub fn dimensions(&self) -> &Dimensions {
        &self.dimensions
    }

    /// The tokens whose logits behind a pair are its score, the one that says yes first.
    pub fn scored_tokens(&self) -> Vec<u32> {
        match self.task {
            Task::ScoreTokens { yes, no, .. } => std::iter::once(yes).chain(no).collect(),
            _ => Vec::new(),
        }
    }

    /// The number of a pair, from the logits of [`scored_tokens`](Self::scored_tokens).
    pub fn score_of(logits: &[f32]) -> Vec<f32> {
        match logits {
            [yes, no] => vec![yes - no],
            others => others.to_vec(),
        }
    }

    /// Which rows of a text it reads.
    pub fn rows(&self) -> Rows {
        match self.task {
            Task::ClassifyTokens { .. } => Rows::All,
            _ => Rows::of(&self.pooling),
        }
    }

    /// What the head gives for a text. `rows`: `[tokens, width]`, those that [`rows`](Self::rows) names. `prompt`: how many of
    /// its first tokens are a prompt's, which some models leave out.
    pub fn pool(&self, rows: &[f32], width: usize, prompt: usize) -> Vec<f32> {
        let skipped = if self.prompts.are_pooled { 0 } else { prompt };
        let pooled = match self.pooling.as_slice() {
            // Each row stays.
            [] => rows.to_vec(),
            modes => pooling::pool(modes, rows, width, skipped),
        };
        self.steps.iter().fold(pooled, |vector, step| step.apply(&vector))
    }

    /// A vector's first numbers, normalized again where the model normalizes.
    pub fn cut(&self, vector: &[f32], width: usize) -> Vec<f32> {
        let first = vector.get(..width).unwrap_or(vector).to_vec();
        if self.steps.last() == Some(&Step::Normalize) { step::normalized(first) } else { first }
    }

    /// Fails where the head's layers do not fit each other and a network with rows of this width.
    pub fn check(&self, hidden: usize) -> Result<(), PoolerError> {
        let mut width = hidden * self.pooling.len().max(1);
        for step in &self.steps {
            if !step.fits(width) {
                let reason = format!("a layer behind the network does not read vectors of {width} numbers");
                return Err(PoolerError::new("modules.json", reason));
            }
            width = step.outputs().unwrap_or(width);
        }
        Ok(())
    }

    /// Numbers of what a text or a pair gives, of a network with rows of this width.
    pub fn width(&self, hidden: usize) -> usize {
        if matches!(self.task, Task::ScoreTokens { .. }) {
            return 1;
        }
        self.steps
            .iter()
            .fold(hidden * self.pooling.len().max(1), |width, step| step.outputs().unwrap_or(width))
    }
}

impl Dimensions {
    fn read(config: &Map<String, Value>) -> Self {
        let listed = config.get("matryoshka_dimensions").and_then(Value::as_array);
        match listed {
            Some(listed) => {
                Self::Of(listed.iter().filter_map(Value::as_u64).map(|width| width as usize).collect())
            }
            None => Self::Any,
        }
    }
}
