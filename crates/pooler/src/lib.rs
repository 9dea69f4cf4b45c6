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
mod late;
mod lexical;
mod modules;
mod pooling;
mod prompts;
mod step;
mod torch_file;

use std::path::Path;

pub use activation::Activation;
pub use error::PoolerError;
pub use late::{Expansion, LateInteraction, TokenForm, max_sim};
use lexical::LexicalHeads;
pub use pooling::{PoolingMode, Rows};
pub use prompts::Prompts;
use serde_json::{Map, Value};
use step::Step;

/// What becomes of a text's hidden states.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooler {
    task: Task,
    /// What each token's state passes through before anything is pooled.
    token_steps: Vec<Step>,
    pooling: Vec<PoolingMode>,
    prompts: Prompts,
    steps: Vec<Step>,
    max_tokens: Option<usize>,
    dimensions: Dimensions,
    source: PoolerSource,
    tokens: TextForm,
    /// How texts are compared token by token.
    late: Option<LateInteraction>,
    /// What BGE-M3 has beside its vectors.
    lexical: Option<LexicalHeads>,
}

/// Which tokens of a text a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// With special tokens around them.
    Special,
    /// The text's own (static embeddings). A text without tokens has a vector of zeros.
    Plain,
    /// The text's own that the vocabulary has (Model2Vec).
    Known,
}

/// What is made of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PoolingOutput {
    /// What the model is for.
    #[default]
    Task,
    /// A vector of each token.
    TokenVectors,
    /// A weight of each token (BGE-M3).
    TokenWeights,
}

/// Whether vectors have the length 1 where the model's files say so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum VectorLength {
    #[default]
    AsTheModel,
    AsComputed,
}

/// How similar two vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Similarity {
    Cosine,
    /// Of weights of words.
    Dot,
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
    /// A weight of each token of the vocabulary for each text (SPLADE).
    EmbedSparse {
        /// From the largest logit of a token to its weight.
        activation: SparseActivation,
    },
    /// A vector for each token of a text, which are compared one by one (ColBERT).
    EmbedTokens,
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

/// From the largest logit of a token to its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseActivation {
    /// `ln(1 + max(x, 0))`
    Log1p,
    /// `ln(1 + ln(1 + max(x, 0)))`
    Log1pTwice,
}

impl SparseActivation {
    fn apply(self, logits: &[f32]) -> Vec<f32> {
        let weight = |logit: &f32| {
            let once = f64::from(logit.max(0.0)).ln_1p();
            match self {
                Self::Log1p => once as f32,
                Self::Log1pTwice => once.ln_1p() as f32,
            }
        };
        logits.iter().map(weight).collect()
    }
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
        pooler.lexical = LexicalHeads::read(directory)?;
        pooler.token_steps.splice(0..0, class_heads::token_steps(directory, &config)?);
        Ok(pooler)
    }

    /// That of a model without files of its own: a text's vector is the normalized state of its last token.
    pub fn of_generator() -> Self {
        Self::new(Task::Embed, vec![PoolingMode::Last], vec![Step::Normalize])
    }

    fn new(task: Task, pooling: Vec<PoolingMode>, steps: Vec<Step>) -> Self {
        let (prompts, max_tokens) = (Prompts::default(), None);
        let (dimensions, source) = (Dimensions::Any, PoolerSource::Class);
        Self {
            task,
            token_steps: Vec::new(),
            pooling,
            prompts,
            steps,
            max_tokens,
            dimensions,
            source,
            tokens: TextForm::Special,
            late: None,
            lexical: None,
        }
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

    /// Which tokens of a text it reads.
    pub fn text_form(&self) -> TextForm {
        self.tokens
    }

    /// How texts are compared token by token, of a model for that.
    pub fn late_interaction(&self) -> Option<&LateInteraction> {
        self.late.as_ref()
    }

    /// How similar two vectors are.
    pub fn similarity(&self) -> Similarity {
        match self.task {
            Task::EmbedSparse { .. } => Similarity::Dot,
            _ => Similarity::Cosine,
        }
    }

    /// Whether it makes this of a text.
    pub fn gives(&self, output: PoolingOutput) -> bool {
        match (output, &self.task) {
            (PoolingOutput::Task, _) => true,
            (PoolingOutput::TokenVectors, task) => matches!(task, Task::Embed | Task::EmbedTokens),
            (PoolingOutput::TokenWeights, _) => self.lexical.is_some(),
        }
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
    pub fn rows(&self, output: PoolingOutput) -> Rows {
        match (output, &self.task) {
            (PoolingOutput::TokenVectors | PoolingOutput::TokenWeights, _) => Rows::All,
            (PoolingOutput::Task, Task::EmbedSparse { .. }) => Rows::Vocabulary,
            (PoolingOutput::Task, Task::ClassifyTokens { .. } | Task::EmbedTokens) => Rows::All,
            (PoolingOutput::Task, _) => Rows::of(&self.pooling),
        }
    }

    /// What the head gives for a text. `rows`: `[tokens, width]`, those that [`rows`](Self::rows) names. `prompt`: how many of
    /// its first tokens are a prompt's, which some models leave out.
    pub fn pool(&self, (rows, width): (&[f32], usize), prompt: usize, length: VectorLength) -> Vec<f32> {
        if let Task::EmbedSparse { activation } = self.task {
            return activation.apply(rows);
        }
        let skipped = if self.prompts.are_pooled { 0 } else { prompt };
        let (rows, width) = by_row(&self.token_steps, length, (rows, width));
        let pooled = match self.pooling.as_slice() {
            // Each row stays.
            [] => rows,
            modes => pooling::pool(modes, &rows, width, skipped),
        };
        self.steps.iter().filter(|step| length.keeps(step)).fold(pooled, |vector, step| step.apply(&vector))
    }

    /// What a text without tokens has, of a model that reads no others.
    pub fn of_no_tokens(&self, width: usize) -> Vec<f32> {
        vec![0.0; self.width(width, 0)]
    }

    /// Vectors of each row, one behind the other. `rows`: `[tokens, width]`.
    pub fn token_vectors(&self, rows: (&[f32], usize), length: VectorLength) -> Vec<f32> {
        match &self.lexical {
            Some(heads) => heads.vectors(rows, length),
            None => {
                let normalized = self.steps.last().filter(|step| **step == Step::Normalize);
                let steps: Vec<Step> = self.token_steps.iter().chain(normalized).cloned().collect();
                by_row(&steps, length, rows).0
            }
        }
    }

    /// A weight of each row. `rows`: `[tokens, width]`. Empty where the model has none.
    pub fn token_weights(&self, (rows, _): (&[f32], usize)) -> Vec<f32> {
        self.lexical.as_ref().map(|heads| heads.weights(rows)).unwrap_or_default()
    }

    /// A vector's first numbers, normalized again where the model normalizes.
    pub fn cut(&self, vector: &[f32], width: usize) -> Vec<f32> {
        let first = vector.get(..width).unwrap_or(vector).to_vec();
        if self.steps.last() == Some(&Step::Normalize) { step::normalized(first) } else { first }
    }

    /// Fails where the head's layers do not fit each other and a network with rows of this width.
    pub fn check(&self, hidden: usize) -> Result<(), PoolerError> {
        let width = checked(&self.token_steps, hidden)?;
        checked(&self.steps, width * self.pooling.len().max(1))?;
        match &self.lexical {
            Some(heads) => heads.check(hidden),
            None => Ok(()),
        }
    }

    /// Numbers of what a text or a pair gives, of a network with rows of this width and a vocabulary of this size; of each
    /// token, where it has them for each.
    pub fn width(&self, hidden: usize, vocab: usize) -> usize {
        match self.task {
            Task::ScoreTokens { .. } => 1,
            Task::EmbedSparse { .. } => vocab,
            _ => {
                let of_token = outputs(&self.token_steps, hidden);
                outputs(&self.steps, of_token * self.pooling.len().max(1))
            }
        }
    }

    /// Numbers of a token's vector.
    pub fn token_width(&self, hidden: usize) -> usize {
        match &self.lexical {
            Some(heads) => heads.vector_width(),
            None => outputs(&self.token_steps, hidden),
        }
    }
}

impl VectorLength {
    fn keeps(self, step: &Step) -> bool {
        self == Self::AsTheModel || *step != Step::Normalize
    }
}

/// Each row through the steps, one behind the other, and the width of a row then.
fn by_row(steps: &[Step], length: VectorLength, (rows, width): (&[f32], usize)) -> (Vec<f32>, usize) {
    if steps.is_empty() {
        return (rows.to_vec(), width);
    }
    let steps = || steps.iter().filter(|step| length.keeps(step));
    let of_row = |row: &[f32]| steps().fold(row.to_vec(), |row, step| step.apply(&row));
    (rows.chunks_exact(width.max(1)).flat_map(of_row).collect(), outputs(steps(), width))
}

/// The width of what steps give of a row of this width.
fn outputs<'a>(steps: impl IntoIterator<Item = &'a Step>, width: usize) -> usize {
    steps.into_iter().fold(width, |width, step| step.outputs().unwrap_or(width))
}

/// The width of what steps give; fails where one does not read what the one before gives.
fn checked(steps: &[Step], hidden: usize) -> Result<usize, PoolerError> {
    let mut width = hidden;
    for step in steps {
        if !step.fits(width) {
            let reason = format!("a layer behind the network does not read vectors of {width} numbers");
            return Err(PoolerError::new("modules.json", reason));
        }
        width = step.outputs().unwrap_or(width);
    }
    Ok(width)
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
