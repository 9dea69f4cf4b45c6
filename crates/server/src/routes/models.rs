//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use omnibus_engine::ModelInfo;

use crate::app::App;
use crate::error::ApiError;
use crate::keys::Key;
use crate::wire::models::{Model, ModelList};

/// Lists the models that the key may use, once per served name. Adapters are listed once, after their model.
pub async fn list(State(app): State<Arc<App>>, Extension(key): Extension<Arc<Key>>) -> Json<ModelList> {
    let named = |info: ModelInfo| {
        let count = if info.adapter.is_some() { 1 } else { usize::MAX };
        info.names().take(count).map(|name| listed(&info, name)).collect::<Vec<_>>()
    };
    Json(ModelList { object: "list", data: usable(&app, &key).into_iter().flat_map(named).collect() })
}

fn usable(app: &App, key: &Key) -> Vec<ModelInfo> {
    app.engine.models().into_iter().filter(|model| key.may_use(model)).collect()
}

/// One model by any of its names.
pub async fn one(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Model>, ApiError> {
    let Path(id) = id?;
    let models = usable(&app, &key);
    let found = models.iter().find(|info| info.names().any(|name| name == id));
    let found = found.map(|info| Json(listed(info, &id)));
    found.ok_or_else(|| omnibus_engine::Failure::unknown_model(id, &models).into())
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
        loaded: details.is_some(),
    }
}
