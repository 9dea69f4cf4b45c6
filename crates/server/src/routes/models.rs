//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use omnibus_engine::ModelInfo;

use crate::app::App;
use crate::error::ApiError;
use crate::wire::models::{Model, ModelList};

/// Lists the models, once per served name.
pub async fn list(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: app.engine.models().into_iter().flat_map(named).collect() })
}

/// One model by name.
pub async fn one(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Model>, ApiError> {
    let Path(id) = id?;
    let found = app.engine.models().into_iter().flat_map(named).find(|model| model.id == id);
    found.map(Json).ok_or_else(|| omnibus_engine::Failure::UnknownModel { model: id }.into())
}

/// A model once per served name.
fn named(info: ModelInfo) -> Vec<Model> {
    let names = std::iter::once(&info.id).chain(&info.aliases);
    let model = |name: &String| Model {
        id: name.clone(),
        object: "model",
        created: info.created,
        owned_by: "omnibus",
        root: info.id.clone(),
        context_length: info.context_length,
        max_model_len: info.max_model_len,
        architecture: info.architecture.clone(),
        quantization: info.quantization.clone(),
        loaded: info.loaded,
    };
    names.map(model).collect()
}
