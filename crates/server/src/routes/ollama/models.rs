//! `GET /api/tags`, `/api/ps`, `/api/version` and `POST /api/show`: the served models in Ollama's shape.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use jiff::Timestamp;
use omnibus_engine::{Capabilities, Modality, ModelDetails, ModelInfo, ModelTask};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::served;
use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::keys::Key;
use crate::routes::models::usable;
use crate::wire::ollama::models::{Details, List, Loaded, Named, Show, Tag};
use crate::wire::ollama::name::listed;

/// The version of Ollama whose API this is: clients compare it with the one that they need.
const VERSION: &str = "0.40.4";
/// When a model ends that stays loaded while the server runs, as Ollama writes it.
const NEVER: &str = "2318-01-01T00:00:00Z";
/// The width of names in a description's parameters.
const NAME_WIDTH: usize = 30;

/// The version of Ollama's API.
pub async fn version() -> Json<Value> {
    Json(json!({"version": VERSION}))
}

/// Lists the models that the key may use, once per served name. Adapters are listed once, after their model.
pub async fn tags(State(app): State<Arc<App>>, Extension(key): Extension<Arc<Key>>) -> Json<List<Tag>> {
    let named = |info: &ModelInfo| {
        let count = if info.adapter.is_some() { 1 } else { usize::MAX };
        info.names().take(count).map(|name| tag(info, name)).collect::<Vec<_>>()
    };
    Json(List { models: usable(&app, &key).iter().flat_map(named).collect() })
}

/// Lists the loaded models that the key may use.
pub async fn loaded(State(app): State<Arc<App>>, Extension(key): Extension<Arc<Key>>) -> Json<List<Loaded>> {
    let loaded = |info: &ModelInfo| {
        // An adapter is part of its model.
        let details = info.details().filter(|_| info.adapter.is_none())?;
        let name = listed(&info.id);
        let size = details.memory.weights_bytes + details.memory.kv_bytes;
        Some(Loaded {
            digest: digest(&name),
            model: name.clone(),
            name,
            size,
            details: details_of(info),
            expires_at: expires_at(&app, &info.id),
            size_vram: size,
            context_length: details.max_model_len,
        })
    };
    Json(List { models: usable(&app, &key).iter().filter_map(loaded).collect() })
}

/// When a model is unloaded unless it is used again.
fn expires_at(app: &App, model: &str) -> String {
    let expires = app.engine.residence(Some(model)).and_then(|residence| residence.expires);
    let expires = expires.and_then(|at| Timestamp::try_from(at).ok());
    expires.map_or_else(|| NEVER.to_owned(), |at| at.to_string())
}

/// Describes a model.
pub async fn show(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    request: Request,
) -> Result<Json<Show>, ApiError> {
    let body = app.bodies.untyped_json(request).await?;
    let Named { model, .. } = blocking(move || Named::read(body.parse()?.0)).await?;
    let models = usable(&app, &key);
    let (info, name) = served::find(&models, &model).ok_or_else(|| missing(&model))?;
    Ok(Json(shown(info, name)))
}

/// 404, in words that clients look for.
pub fn missing(name: &str) -> ApiError {
    ApiError::unknown_object("model", format!("model '{name}' not found"))
}

fn shown(info: &ModelInfo, name: &str) -> Show {
    let infill = info.details().is_some_and(|details| details.capabilities.infill);
    let parameter = |details: &ModelDetails| format!("{:<NAME_WIDTH$} {}", "num_ctx", details.max_model_len);
    Show {
        license: "",
        modelfile: format!("FROM {}", listed(name)),
        parameters: info.details().map(parameter).unwrap_or_default(),
        // Clients look for these names to know what a prompt may have.
        template: if infill { "{{ .Prompt }}{{ .Suffix }}" } else { "{{ .Prompt }}" },
        details: details_of(info),
        model_info: model_info(info, name),
        capabilities: abilities(info.details()),
        modified_at: modified_at(info),
    }
}

fn model_info(info: &ModelInfo, name: &str) -> Map<String, Value> {
    let mut all = Map::new();
    let base = name.rsplit('/').next().unwrap_or(name).split(':').next().unwrap_or_default();
    all.insert("general.basename".to_owned(), base.into());
    if let Some(details) = info.details() {
        let architecture = &details.architecture;
        all.insert("general.architecture".to_owned(), architecture.as_str().into());
        all.insert("general.parameter_count".to_owned(), parameters(details).into());
        all.insert(format!("{architecture}.context_length"), details.max_model_len.into());
        all.insert(format!("{architecture}.embedding_length"), details.hidden_size.into());
        all.insert(format!("{architecture}.vocab_size"), details.vocab_size.into());
    }
    all
}

fn tag(info: &ModelInfo, name: &str) -> Tag {
    let name = listed(name);
    let details = info.details();
    Tag {
        digest: digest(&name),
        model: name.clone(),
        name,
        modified_at: modified_at(info),
        size: details.map_or(0, |details| details.memory.weights_bytes),
        details: details_of(info),
        capabilities: abilities(details),
    }
}

fn details_of(info: &ModelInfo) -> Details {
    let Some(details) = info.details() else {
        return Details { format: "safetensors", ..Details::default() };
    };
    Details {
        parent_model: "",
        format: "safetensors",
        family: details.architecture.clone(),
        families: vec![details.architecture.clone()],
        parameter_size: in_billions(parameters(details)),
        quantization_level: details.quantization.clone().unwrap_or_default(),
    }
}

/// What a model can do, in Ollama's words.
fn abilities(details: Option<&ModelDetails>) -> Vec<&'static str> {
    let Capabilities { thinking, tools, infill } =
        details.map(|details| details.capabilities).unwrap_or_default();
    let reads = |modality| details.is_some_and(|details| details.modalities.contains(&modality));
    let (vision, audio) = (reads(Modality::Image), reads(Modality::Audio));
    let optional =
        [("tools", tools), ("insert", infill), ("vision", vision), ("thinking", thinking), ("audio", audio)];
    let can = optional.into_iter().filter(|(_, can)| *can).map(|(name, _)| name);
    match details.map(|details| details.task) {
        Some(ModelTask::Embed) => vec!["embedding"],
        Some(ModelTask::Score | ModelTask::Classify | ModelTask::TokenClassify) => Vec::new(),
        Some(ModelTask::Generate | ModelTask::Transcribe) | None => {
            std::iter::once("completion").chain(can).collect()
        }
    }
}

/// About how many weights there are: their bytes, by the bits that one takes with its share of scales.
fn parameters(details: &ModelDetails) -> u64 {
    let label = details.quantization.as_deref().unwrap_or_default();
    let digits: String = label.chars().filter(char::is_ascii_digit).collect();
    let bits_tenfold = digits.parse::<u64>().map_or(160, |bits| bits * 10 + 5);
    details.memory.weights_bytes.saturating_mul(80) / bits_tenfold.max(1)
}

fn in_billions(parameters: u64) -> String {
    match parameters {
        1_000_000_000.. => format!("{:.1}B", parameters as f64 / 1e9),
        1_000_000.. => format!("{:.0}M", parameters as f64 / 1e6),
        _ => format!("{:.0}K", parameters as f64 / 1e3),
    }
}

fn modified_at(info: &ModelInfo) -> String {
    let created = i64::try_from(info.created).ok().and_then(|at| Timestamp::from_second(at).ok());
    created.unwrap_or_default().to_string()
}

/// A model has no digest of its own: hashing its weights takes minutes. Its name has one.
fn digest(name: &str) -> String {
    Sha256::digest(name.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_in_ollama() {
        assert_eq!(in_billions(7_615_616_512), "7.6B");
        assert_eq!(in_billions(494_032_768), "494M");
        assert_eq!(in_billions(123_456), "123K");
    }
}
