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
    let read = move || {
        let (value, reading) = body.parse()?;
        Ok((ApplyTemplateRequest::read(value)?, reading))
    };
    let (wire, _reading) = blocking(read).await?;
    let _lease = app.lease(&tenant, wire.model.as_deref()).await?;
    let work = move || {
        let model = wire.model.as_deref();
        let chat = lower::chat::chat(wire.conversation);
        app.request_templates.check(&chat)?;
        let prompt = app.engine.render(model, chat)?;
        Ok(Rendered { prompt })
    };
    blocking(work).await.map(Json)
}
