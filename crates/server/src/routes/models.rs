//! `GET /v1/models` and `GET /v1/models/{id}`, in OpenAI's shape and TypeSafe's, and in Anthropic's for its clients.

pub mod load;
pub mod plan;
pub mod sleep;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use omnibus_engine::{ModelInfo, ModelState};
use serde::Deserialize;

use crate::app::App;
use crate::error::ApiError;
use crate::keys::Key;
use crate::wire::anthropic::models as anthropic;
use crate::wire::models::{DecisionModel, Model, ModelList, ModelMemory, ModelStatus};

/// The header that Anthropic's clients send with every request.
const ANTHROPIC: &str = "anthropic-version";

/// Which models of a list to return to Anthropic's clients.
#[derive(Debug, Default, Deserialize)]
pub struct Page {
    limit: Option<usize>,
    after_id: Option<String>,
    before_id: Option<String>,
}

/// Most models of a page, and how many where the client does not say.
const PAGE: (usize, usize) = (1000, 20);

/// Lists the models that the key may use, once per served name. Adapters are listed once, after their model.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    headers: HeaderMap,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Response, ApiError> {
    let named = |info: ModelInfo| {
        let count = if info.adapter.is_some() { 1 } else { usize::MAX };
        info.names().take(count).map(|name| located(&app, &info, name)).collect::<Vec<_>>()
    };
    let data: Vec<Model> = usable(&app, &key).into_iter().flat_map(named).collect();
    if !headers.contains_key(ANTHROPIC) {
        let models = data.iter().map(of_typesafe).collect();
        return Ok(Json(ModelList { object: "list", data, models }).into_response());
    }
    let Query(page) = page.map_err(|error| ApiError::invalid("limit", error.body_text()))?;
    Ok(Json(paged(data, &page)).into_response())
}

/// The models that the key may use.
pub fn usable(app: &App, key: &Key) -> Vec<ModelInfo> {
    app.engine.models().into_iter().filter(|model| key.may_use(model)).collect()
}

/// A page of the models, in Anthropic's shape.
fn paged(models: Vec<Model>, page: &Page) -> anthropic::ModelPage {
    let (most, default) = PAGE;
    let place = |id: &Option<String>| {
        let id = id.as_ref()?;
        models.iter().position(|model| model.id == *id)
    };
    let start = place(&page.after_id).map_or(0, |at| at + 1);
    let end = place(&page.before_id).unwrap_or(models.len());
    let limit = page.limit.unwrap_or(default).clamp(1, most);
    let rest = models.get(start..end).unwrap_or_default();
    let data: Vec<anthropic::Model> = rest.iter().take(limit).map(of_anthropic).collect();
    let id = |model: Option<&anthropic::Model>| model.map(|model| model.id.clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    anthropic::ModelPage { has_more: rest.len() > data.len(), data, first_id, last_id }
}

fn created(model: &Model) -> Timestamp {
    let created = i64::try_from(model.created).ok().and_then(|at| Timestamp::from_second(at).ok());
    created.unwrap_or_default()
}

fn of_typesafe(model: &Model) -> DecisionModel {
    DecisionModel {
        name: model.id.clone(),
        description: model.architecture.clone().unwrap_or_else(|| "not loaded".to_owned()),
        release_date: created(model).strftime("%Y-%m-%d").to_string(),
    }
}

fn of_anthropic(model: &Model) -> anthropic::Model {
    anthropic::Model {
        kind: "model",
        id: model.id.clone(),
        display_name: model.id.clone(),
        created_at: created(model).to_string(),
        lifecycle: "active",
        max_input_tokens: model.max_model_len,
        max_tokens: model.max_model_len,
    }
}

/// One model by any of its names.
pub async fn one(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(id) = id?;
    let models = usable(&app, &key);
    let Some(info) = models.iter().find(|info| info.names().any(|name| name == id)) else {
        return Err(omnibus_engine::Failure::unknown_model(id, &models).into());
    };
    let model = located(&app, info, &id);
    Ok(match headers.contains_key(ANTHROPIC) {
        true => Json(of_anthropic(&model)).into_response(),
        false => Json(model).into_response(),
    })
}

/// A model under one of its names, and where it is.
fn located(app: &App, info: &ModelInfo, name: &str) -> Model {
    let Some(residence) = app.engine.residence(Some(name)) else { return listed(info, name) };
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let status = ModelStatus {
        value: residence.status,
        progress: match &info.state {
            ModelState::Loading(progress) => Some(*progress),
            ModelState::Unloaded | ModelState::Ready(_) | ModelState::Failed { .. } => None,
        },
        failed: residence.failure.is_some(),
        error: residence.failure,
    };
    let memory = ModelMemory {
        bytes: residence.bytes,
        pinned: residence.pinned,
        active_requests: residence.active,
        waiting_requests: residence.waiting,
        last_used: residence.last_used.map(seconds),
        expires_at: residence.expires.map(seconds),
        loads: residence.loads,
    };
    Model { status: Some(status), memory: Some(memory), ..listed(info, name) }
}

/// A model under one of its names.
pub fn listed(info: &ModelInfo, name: &str) -> Model {
    let (adapter, details) = (info.adapter.as_ref(), info.details());
    Model {
        id: name.to_owned(),
        object: "model",
        created: info.created,
        owned_by: "omnibus",
        root: adapter.map_or_else(|| info.id.clone(), |adapter| adapter.path.clone()),
        parent: adapter.map(|adapter| adapter.parent.clone()),
        context_length: details.map(|details| details.context_length),
        max_model_len: details.map(|details| details.max_model_len),
        architecture: details.map(|details| details.architecture.clone()),
        quantization: details.and_then(|details| details.quantization.clone()),
        default_generation_settings: details
            .map(|details| details.sampling.values().map(|(of, value, _)| (of.name(), value)).collect()),
        task: details.map(|details| details.task),
        modalities: details.map(|details| details.modalities.clone()).unwrap_or_default(),
        chat_template_hash: details
            .and_then(|details| details.chat_template.map(|hash| format!("{hash:032x}"))),
        loaded: details.is_some(),
        status: None,
        memory: None,
    }
}
