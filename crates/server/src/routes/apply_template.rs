//! `POST /apply-template`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};

use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::lower;
use crate::wire::apply_template::{ApplyTemplateRequest, Rendered};

/// Renders a conversation.
pub async fn apply(State(app): State<Arc<App>>, request: Request) -> Result<Json<Rendered>, ApiError> {
    let Tenant(tenant) = request.extensions().get::<Tenant>().cloned().unwrap_or_default();
    let body = app.bodies.json(request).await?;
    let work = move || {
        let (value, _reading) = body.parse()?;
        let wire = ApplyTemplateRequest::read(value)?;
        let model = wire.model.as_deref();
        app.keys.of_tenant(&tenant)?.check_model(model, app.engine.as_ref())?;
        let chat = lower::chat::chat(wire.conversation);
        app.request_templates.check(&chat)?;
        let prompt = app.engine.render(model, chat)?;
        Ok(Rendered { prompt })
    };
    blocking(work).await.map(Json)
}
