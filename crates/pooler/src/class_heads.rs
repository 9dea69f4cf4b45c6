//! Heads of checkpoints without `modules.json`: the class that they were saved from decides.
//!
//! Source: transformers `modeling_*.py` of each class; sentence-transformers `CrossEncoder` for the activation of scores.

use std::path::Path;

use serde_json::{Map, Value};

use crate::activation::Activation;
use crate::checkpoint::Checkpoint;
use crate::error::PoolerError;
use crate::late;
use crate::pooling::PoolingMode;
use crate::step::Step;
use crate::{Pooler, Task, TextForm};

/// What the class of a checkpoint says.
pub(crate) fn read(directory: &Path, config: &Map<String, Value>) -> Result<Pooler, PoolerError> {
    let class = config.get("architectures").and_then(Value::as_array).and_then(|classes| classes.first());
    let class = class.and_then(Value::as_str).unwrap_or_default();
    let checkpoint = Checkpoint::new(directory, "");
    if let Some(model) = class.strip_suffix("ForSequenceClassification") {
        let (pooling, steps) = sequence_head(model, config, &checkpoint)?;
        return Ok(Pooler::new(sequence_task(config)?, vec![pooling], steps));
    }
    if class.ends_with("ForTokenClassification") {
        let classifier = checkpoint.dense("classifier", Activation::Identity)?;
        let task = Task::ClassifyTokens { labels: labels(config) };
        return Ok(Pooler::new(task, Vec::new(), vec![Step::Dense(classifier)]));
    }
    if class == late::STANFORD_CLASS {
        return late::stanford(directory, &checkpoint);
    }
    if config.get("model_type").and_then(Value::as_str) == Some("model2vec") {
        return Ok(model2vec(config));
    }
    if class.contains("ForCausalLM") || class.contains("LMHead") {
        return Ok(Pooler::of_generator());
    }
    // As sentence-transformers has it.
    Ok(Pooler::new(Task::Embed, vec![PoolingMode::Mean], Vec::new()))
}

/// Model2Vec without files of sentence-transformers: the mean of known tokens' rows.
fn model2vec(config: &Map<String, Value>) -> Pooler {
    let normalizes = config.get("normalize").and_then(Value::as_bool).unwrap_or(false);
    let steps = normalizes.then_some(Step::Normalize).into_iter().collect();
    Pooler { tokens: TextForm::Known, ..Pooler::new(Task::Embed, vec![PoolingMode::Mean], steps) }
}

/// From the states of a text to the numbers of its labels.
fn sequence_head(
    model: &str,
    config: &Map<String, Value>,
    checkpoint: &Checkpoint,
) -> Result<(PoolingMode, Vec<Step>), PoolerError> {
    let dense = |path: &str, act| checkpoint.dense(path, act).map(Step::Dense);
    let classifier = |path: &str| dense(path, Activation::Identity);
    Ok(match model {
        "Bert" => {
            (PoolingMode::Cls, vec![dense("bert.pooler.dense", Activation::Tanh)?, classifier("classifier")?])
        }
        "DebertaV2" => {
            let act = activation_named(config, "pooler_hidden_act", "gelu")?;
            (PoolingMode::Cls, vec![dense("pooler.dense", act)?, classifier("classifier")?])
        }
        "New" | "Gte" => {
            let pooler = match checkpoint.tensor("new.pooler.dense.weight")? {
                Some(_) => "new.pooler.dense",
                None => "gte.pooler.dense",
            };
            (PoolingMode::Cls, vec![dense(pooler, Activation::Tanh)?, classifier("classifier")?])
        }
        "Roberta" | "XLMRoberta" | "Camembert" => {
            let first = dense("classifier.dense", Activation::Tanh)?;
            (PoolingMode::Cls, vec![first, classifier("classifier.out_proj")?])
        }
        "DistilBert" => {
            (PoolingMode::Cls, vec![dense("pre_classifier", Activation::Relu)?, classifier("classifier")?])
        }
        "ModernBert" => {
            let text = |field: &str| config.get(field).and_then(Value::as_str);
            let pooling = match text("classifier_pooling") {
                Some("mean") => PoolingMode::Mean,
                _ => PoolingMode::Cls,
            };
            let act = activation_named(config, "classifier_activation", "gelu")?;
            let norm = Step::Norm {
                weight: checkpoint.vector("head.norm.weight")?.into(),
                bias: checkpoint
                    .tensor("head.norm.bias")?
                    .map(|bias| bias.numbers)
                    .unwrap_or_default()
                    .into(),
                eps: config.get("norm_eps").and_then(Value::as_f64).unwrap_or(1e-5) as f32,
            };
            (pooling, vec![dense("head.dense", act)?, norm, classifier("classifier")?])
        }
        // Decoders read the last token.
        _ => (PoolingMode::Last, vec![classifier("score")?]),
    })
}

/// A field that names an activation.
fn activation_named(
    config: &Map<String, Value>,
    field: &str,
    absent: &str,
) -> Result<Activation, PoolerError> {
    let name = config.get(field).and_then(Value::as_str).unwrap_or(absent);
    Activation::named(name)
        .ok_or_else(|| PoolerError::new("config.json", format!("`{field}` {name} is not supported")))
}

/// What a network's own last layer makes of each token's state, where the blueprint does not have it: EmbeddingGemma 2
/// projects to the vector's width.
pub(crate) fn token_steps(directory: &Path, config: &Map<String, Value>) -> Result<Vec<Step>, PoolerError> {
    if config.get("model_type").and_then(Value::as_str) != Some("embedding_gemma2") {
        return Ok(Vec::new());
    }
    const NAMES: [&str; 3] = [
        "language_model.embedding_projection",
        "model.language_model.embedding_projection",
        "embedding_projection",
    ];
    let checkpoint = Checkpoint::new(directory, "");
    for name in NAMES {
        if checkpoint.tensor(&format!("{name}.weight"))?.is_some() {
            return Ok(vec![Step::Dense(checkpoint.dense(name, Activation::Identity)?)]);
        }
    }
    Err(PoolerError::new("model.safetensors", "has no tensor `embedding_projection.weight`"))
}

/// One label is a score of pairs, more are those of a text.
fn sequence_task(config: &Map<String, Value>) -> Result<Task, PoolerError> {
    let labels = labels(config);
    let activation = activation(config, labels.len())?;
    Ok(match labels.len() {
        0 | 1 => Task::Score { activation },
        _ => Task::Classify { labels, activation },
    })
}

/// Names of labels, in order.
fn labels(config: &Map<String, Value>) -> Vec<String> {
    let named = config.get("id2label").and_then(Value::as_object);
    let count = config.get("num_labels").and_then(Value::as_u64).map(|count| count as usize);
    // Hugging Face's default.
    let count = named.map(Map::len).or(count).unwrap_or(2);
    let name = |number: usize| {
        let name = named.and_then(|named| named.get(&number.to_string())).and_then(Value::as_str);
        name.map_or_else(|| format!("LABEL_{number}"), str::to_owned)
    };
    (0..count.min(LABELS_MAX)).map(name).collect()
}

/// More labels would only allocate memory.
const LABELS_MAX: usize = 1 << 20;

fn activation(config: &Map<String, Value>, labels: usize) -> Result<Activation, PoolerError> {
    let of_class = config.get("sentence_transformers").and_then(|section| section.get("activation_fn"));
    let older = config.get("sbert_ce_default_activation_function");
    if let Some(name) = of_class.or(older).and_then(Value::as_str) {
        return Activation::named(name).ok_or_else(|| {
            PoolerError::new("config.json", format!("the activation {name} is not supported"))
        });
    }
    let problem = config.get("problem_type").and_then(Value::as_str);
    Ok(match (problem, labels) {
        (Some("regression"), _) => Activation::Identity,
        (Some("multi_label_classification"), _) => Activation::Sigmoid,
        (Some("single_label_classification"), 2..) => Activation::Softmax,
        (_, 0 | 1) => Activation::Sigmoid,
        _ => Activation::Softmax,
    })
}
