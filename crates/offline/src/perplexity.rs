//! Perplexity of a model on a text, and how far its predictions are from another model's.
//!
//! The text is cut into sequences of equal length, each computed on its own; every token but a sequence's first is predicted.
//! That is what mlx-lm's `perplexity` computes.

mod text;

use std::time::Instant;

use mlx::Array;
use omnibus_engine::{DeviceChoice, ModelSource, StartError, choose_device};
use omnibus_kv::{BlockId, BlockTable, KvFormat};
use omnibus_model::convert::Conversion;
use omnibus_model::{Batch, InputSquares, Kernels, KvCache, KvStorage, Model, Segment};

pub use text::{TokenSequences, read_tokens};

const BLOCK_SIZE: usize = 32;

/// A model whose perplexity is computed.
pub enum ScoredModel {
    /// As its files are.
    Stored(ModelSource),
    /// As a conversion would write it.
    Converted(Conversion),
}

/// How well a model predicts a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// e to the mean negative log-likelihood.
    pub perplexity: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// Tokens that were predicted.
    pub tokens: usize,
    /// How far from the reference, if there is one.
    pub against: Option<Divergence>,
    /// How weights are packed.
    pub quantization: Option<String>,
    /// Bytes of the weights in memory.
    pub weights_bytes: u64,
    /// Time of the passes.
    pub seconds: f64,
}

/// How far a model's predictions are from a reference's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Divergence {
    /// Mean Kullback-Leibler divergence from the reference, in nats.
    pub kl: f64,
    /// Share of positions where both find the same token the most likely.
    pub top_1: f64,
}

/// A loaded model.
pub struct Predictor {
    model: Model,
    weights_bytes: u64,
}

impl Predictor {
    /// Loads a model.
    pub fn load(model: &ScoredModel, device: DeviceChoice) -> Result<Self, StartError> {
        choose_device(device)?;
        let before = mlx::memory::active_memory();
        let model = match model {
            ScoredModel::Stored(source) => Model::load(&source.files(), Kernels::fastest()),
            ScoredModel::Converted(conversion) => conversion.load(Kernels::fastest()),
        };
        let model = model.map_err(StartError::new)?;
        let weights_bytes = mlx::memory::active_memory().saturating_sub(before) as u64;
        Ok(Self { model, weights_bytes })
    }

    /// Scores the model on some sequences, `batch` of them in a pass.
    pub fn score(
        &self,
        data: &TokenSequences,
        batch: usize,
        reference: Option<&Predictor>,
    ) -> Result<Score, StartError> {
        let begun = Instant::now();
        let vocab = self.model.blueprint().vocab;
        if let Some(other) =
            reference.map(|other| other.model.blueprint().vocab).filter(|other| *other != vocab)
        {
            return Err(StartError::new(format!("the reference has {other} tokens, the model {vocab}")));
        }
        self.check(data)?;
        let (mut losses, mut kl, mut same) = (Vec::new(), 0.0, 0.0);
        for sequences in data.sequences().chunks(batch.max(1)) {
            let logits = self.log_probabilities(sequences).map_err(StartError::new)?;
            losses.extend(losses_of(&logits, sequences).map_err(StartError::new)?);
            if let Some(reference) = reference {
                let others = reference.log_probabilities(sequences).map_err(StartError::new)?;
                let (more_kl, more_same) = divergence(&others, &logits).map_err(StartError::new)?;
                kl += more_kl;
                same += more_same;
            }
        }
        let count = losses.len().max(1) as f64;
        let mean = losses.iter().sum::<f64>() / count;
        let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        let against = reference.map(|_| Divergence { kl: kl / count, top_1: same / count });
        Ok(Score {
            perplexity: mean.exp(),
            standard_error: mean.exp() * (variance / count).sqrt(),
            tokens: losses.len(),
            against,
            quantization: self.model.quantization().label(),
            weights_bytes: self.weights_bytes,
            seconds: begun.elapsed().as_secs_f64(),
        })
    }

    /// The mean squares of what linear layers take as inputs in some sequences, `batch` of them in a pass.
    pub(crate) fn input_squares(
        &self,
        data: &TokenSequences,
        batch: usize,
    ) -> Result<InputSquares, StartError> {
        self.check(data)?;
        let squares = self.model.input_squares(|evaluate| {
            for sequences in data.sequences().chunks(batch.max(1)) {
                self.log_probabilities(sequences)?;
                evaluate()?;
            }
            Ok::<(), mlx::Error>(())
        });
        squares.map_err(StartError::new)
    }

    /// Refuses tokens that the model has not.
    fn check(&self, data: &TokenSequences) -> Result<(), StartError> {
        let vocab = self.model.blueprint().vocab;
        match data.largest() as usize >= vocab {
            true => Err(StartError::new(format!("token {} is not of this model's {vocab}", data.largest()))),
            false => Ok(()),
        }
    }

    /// Log-probabilities of all tokens after every token but each sequence's last, `[rows, vocab]` float32.
    fn log_probabilities(&self, sequences: &[Vec<u32>]) -> mlx::Result<Array> {
        let blueprint = self.model.blueprint();
        let storage = KvStorage::from(KvFormat::Float(self.model.kv_float()));
        let groups = blueprint.kv_cache_groups(storage);
        let longest = sequences.iter().map(Vec::len).max().unwrap_or(0);
        let blocks = |kind: omnibus_kv::CacheKind| kind.blocks_for(BLOCK_SIZE, longest);
        let counts: Vec<usize> =
            groups.iter().map(|group| blocks(group.spec.kind) * sequences.len()).collect();
        let mut cache = KvCache::new(blueprint, &counts, BLOCK_SIZE, storage)?;
        let (mut tokens, mut segments) = (Vec::new(), Vec::new());
        for (number, sequence) in sequences.iter().enumerate() {
            let inputs = &sequence[..sequence.len().saturating_sub(1)];
            let tables = groups.iter().map(|group| {
                let mut table = BlockTable::new(group.spec.kind, BLOCK_SIZE);
                let each = blocks(group.spec.kind);
                table.blocks.extend((number * each..(number + 1) * each).map(|block| BlockId(block as u32)));
                table
            });
            segments.push(Segment {
                first: tokens.len(),
                len: inputs.len(),
                context: 0,
                prompt: inputs.len(),
                samples: 1,
                adapter: None,
                tables: tables.collect(),
            });
            tokens.extend(inputs.iter().map(|token| *token as i32));
        }
        let rows = tokens.len();
        let tokens = Array::from_slice(&tokens, &[rows as i32])?;
        let batch =
            Batch { tokens, segments, logits_at: (0..rows).collect(), multimodal: None, hidden: None };
        let logits =
            self.model.forward(&batch, &mut cache)?.logits.ok_or_else(|| mlx::Error::new("no logits"))?.0;
        let log_probabilities = &logits - logits.logsumexp_keepdims(&[-1])?;
        mlx::eval([&log_probabilities])?;
        Ok(log_probabilities)
    }
}

/// The negative log-likelihood of each sequence's tokens but the first.
fn losses_of(log_probabilities: &Array, sequences: &[Vec<u32>]) -> mlx::Result<Vec<f64>> {
    let targets: Vec<i32> =
        sequences.iter().flat_map(|sequence| sequence.iter().skip(1)).map(|token| *token as i32).collect();
    let targets = Array::from_slice(&targets, &[targets.len() as i32, 1])?;
    let chosen = log_probabilities.take_along_axis(&targets, -1)?.to_vec::<f32>()?;
    Ok(chosen.into_iter().map(|log| -f64::from(log)).collect())
}

/// Sums over rows: the divergence of `found` from `reference`, and how often both have the same first token.
fn divergence(reference: &Array, found: &Array) -> mlx::Result<(f64, f64)> {
    let kl = (reference.exp()? * (reference - found)).sum(&[-1])?.to_vec::<f32>()?;
    let same = reference.argmax(-1)?.equal(&found.argmax(-1)?)?.astype(mlx::Dtype::F32)?.to_vec::<f32>()?;
    Ok((kl.into_iter().map(f64::from).sum(), same.into_iter().map(f64::from).sum()))
}
