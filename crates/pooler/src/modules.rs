//! `modules.json` of sentence-transformers: what follows the network, module by module.
//!
//! Source: sentence-transformers 6.2, `sentence_transformer/modules`, and the files of older versions.

use std::path::Path;

use serde_json::{Map, Value};

use crate::activation::Activation;
use crate::checkpoint::Checkpoint;
use crate::error::{PoolerError, json, object};
use crate::late::{self, LateInteraction};
use crate::pooling::PoolingMode;
use crate::prompts::Prompts;
use crate::step::Step;
use crate::{Pooler, PoolerSource, SparseActivation, Task, TextForm};

const FILE: &str = "modules.json";

/// Names of the file that has a text's length, the usual one first.
const TRANSFORMER_FILES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// `model_max_length` of tokenizers that have none.
const NO_LIMIT: u64 = 1 << 40;

/// The pooler that the modules make; `None` where there are none.
pub(crate) fn read(directory: &Path) -> Result<Option<Pooler>, PoolerError> {
    let Some(modules) = json(directory, FILE)? else { return Ok(None) };
    let modules = modules.as_array().ok_or_else(|| PoolerError::new(FILE, "is not a list"))?;
    let mut pooler =
        Pooler { source: PoolerSource::Modules, ..Pooler::new(Task::Embed, Vec::new(), Vec::new()) };
    let mut are_pooled = true;
    let (mut transformer, mut mask) = (Map::new(), None);
    for module in modules {
        let text = |field: &str| module.get(field).and_then(Value::as_str);
        let (kind, path) = (text("type").unwrap_or_default(), text("path").unwrap_or_default());
        let is_below = !path.starts_with('/') && path.split('/').all(|part| part != "..");
        if !is_below {
            return Err(PoolerError::new(FILE, format!("`{path}` lies outside of the model's folder")));
        }
        let config = |file: &str| object(&directory.join(path), file).map(Option::unwrap_or_default);
        match kind.rsplit('.').next().unwrap_or(kind) {
            "Transformer" | "MLMTransformer" => {
                transformer = transformer_file(&directory.join(path))?.unwrap_or_default();
                pooler.max_tokens = max_tokens(&directory.join(path), &transformer)?;
            }
            "StaticEmbedding" => {
                pooler.tokens = TextForm::Plain;
                pooler.pooling = vec![PoolingMode::Mean];
            }
            "SpladePooling" => pooler.task = splade(&config("config.json")?, path)?,
            "MultiVectorMask" => mask = Some(config("config.json")?),
            "Pooling" => {
                let config = config("config.json")?;
                pooler.pooling = modes(&config, path)?;
                are_pooled = config.get("include_prompt").and_then(Value::as_bool).unwrap_or(true);
            }
            "Dense" => pooler.steps.push(dense(directory, path, &config("config.json")?)?),
            "Normalize" => pooler.steps.push(Step::Normalize),
            "Dropout" => {}
            "LogitScore" => pooler.task = score(directory, &config("config.json")?)?,
            other => return Err(PoolerError::new(FILE, format!("the module {other} is not supported"))),
        }
    }
    pooler.prompts = Prompts::read(directory, are_pooled)?;
    if let Some(late) = late::declared(directory, &transformer, mask.as_ref())? {
        return Ok(Some(late_interaction(pooler, late)));
    }
    if pooler.task == Task::Embed && pooler.pooling.is_empty() {
        return Err(PoolerError::new(FILE, "has no module that pools"));
    }
    Ok(Some(pooler))
}

/// Layers behind the network are of each token, and each token's vector has the length 1.
fn late_interaction(pooler: Pooler, late: LateInteraction) -> Pooler {
    let mut steps = [pooler.token_steps, pooler.steps].concat();
    if steps.last() != Some(&Step::Normalize) {
        steps.push(Step::Normalize);
    }
    Pooler {
        task: Task::EmbedTokens,
        token_steps: steps,
        pooling: Vec::new(),
        steps: Vec::new(),
        prompts: Prompts::of_roles(),
        late: Some(late),
        ..pooler
    }
}

/// The largest logit of each token of the vocabulary.
fn splade(config: &Map<String, Value>, path: &str) -> Result<Task, PoolerError> {
    let refused = |what: &str, found: &str| {
        PoolerError::new(format!("{path}/config.json"), format!("{what} {found} is not supported"))
    };
    let text = |field: &str, absent: &'static str| {
        config.get(field).and_then(Value::as_str).unwrap_or(absent).to_owned()
    };
    let strategy = text("pooling_strategy", "max");
    if strategy != "max" {
        return Err(refused("the pooling strategy", &strategy));
    }
    let activation = match text("activation_function", "relu").as_str() {
        "relu" => SparseActivation::Log1p,
        "log1p_relu" => SparseActivation::Log1pTwice,
        other => return Err(refused("the activation", other)),
    };
    Ok(Task::EmbedSparse { activation })
}

/// What is set for the network, under any of its file's names.
fn transformer_file(folder: &Path) -> Result<Option<Map<String, Value>>, PoolerError> {
    for file in TRANSFORMER_FILES {
        if let Some(config) = object(folder, file)? {
            return Ok(Some(config));
        }
    }
    Ok(None)
}

fn max_tokens(folder: &Path, transformer: &Map<String, Value>) -> Result<Option<usize>, PoolerError> {
    if let Some(length) = transformer.get("max_seq_length").and_then(Value::as_u64) {
        return Ok(Some(length as usize));
    }
    let config = object(folder, "tokenizer_config.json")?.unwrap_or_default();
    let length = config.get("model_max_length").and_then(Value::as_u64);
    Ok(length.filter(|length| *length < NO_LIMIT).map(|length| length as usize))
}

/// `pooling_mode`, a name or a list of names; or a switch for each.
fn modes(config: &Map<String, Value>, path: &str) -> Result<Vec<PoolingMode>, PoolerError> {
    let named = |name: &str| {
        let mode = PoolingMode::NAMED.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode);
        mode.ok_or_else(|| {
            PoolerError::new(
                format!("{path}/config.json"),
                format!("the pooling mode {name} is not supported"),
            )
        })
    };
    match config.get("pooling_mode") {
        Some(Value::String(name)) => return Ok(vec![named(name)?]),
        Some(Value::Array(names)) => return names.iter().filter_map(Value::as_str).map(named).collect(),
        _ => {}
    }
    let is_on = |name: &str| {
        let flags = [
            format!("pooling_mode_{name}"),
            format!("pooling_mode_{name}_tokens"),
            format!("pooling_mode_{name}_token"),
        ];
        flags.iter().any(|flag| config.get(flag).and_then(Value::as_bool).unwrap_or(false))
    };
    let on = PoolingMode::NAMED.iter().filter(|(name, _)| is_on(name)).map(|(_, mode)| *mode);
    Ok(on.collect())
}

fn dense(directory: &Path, path: &str, config: &Map<String, Value>) -> Result<Step, PoolerError> {
    let act = config.get("activation_function").and_then(Value::as_str);
    // Its class's default.
    let act = act.unwrap_or("Tanh");
    let act = Activation::named(act).ok_or_else(|| {
        PoolerError::new(format!("{path}/config.json"), format!("the activation {act} is not supported"))
    })?;
    Checkpoint::new(directory, path).dense("linear", act).map(Step::Dense)
}

/// A score by the logits of one or two tokens.
fn score(directory: &Path, config: &Map<String, Value>) -> Result<Task, PoolerError> {
    let token = |field: &str| {
        let id = config.get(field).and_then(Value::as_u64);
        id.and_then(|id| u32::try_from(id).ok())
    };
    let yes = token("true_token_id");
    let yes = yes.ok_or_else(|| PoolerError::new("1_LogitScore/config.json", "has no `true_token_id`"))?;
    let of_model = object(directory, "config_sentence_transformers.json")?.unwrap_or_default();
    let name = of_model.get("activation_fn").and_then(Value::as_str).unwrap_or("Sigmoid");
    let activation = Activation::named(name).ok_or_else(|| {
        PoolerError::new(
            "config_sentence_transformers.json",
            format!("the activation {name} is not supported"),
        )
    })?;
    Ok(Task::ScoreTokens { yes, no: token("false_token_id"), activation })
}
