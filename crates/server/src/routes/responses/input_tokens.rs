//! `POST /v1/responses/input_tokens`: the tokens of the prompt that a request would have.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use omnibus_engine::AddSpecial;
use serde_json::Value;

use super::mcp_history::History;
use super::{ResponsesApi, conversation, lowered};
use crate::api::{Api, RequestContext};
use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::lower::Caller;
use crate::request_id::RequestId;
use crate::wire::responses::ResponsesRequest;
use crate::wire::responses::response::InputTokens;

/// Counts the tokens of a request's prompt.
pub async fn count(State(app): State<Arc<App>>, request: Request) -> Result<Json<InputTokens>, ApiError> {
    let Tenant(tenant) = request.extensions().get::<Tenant>().cloned().unwrap_or_default();
    let body = app.bodies.json(request).await?;
    let (value, _reading) = blocking(move || body.parse()).await?;
    let _lease = app.lease(&tenant, ResponsesApi::model(&value, &app).as_deref()).await?;
    blocking(move || counted(&app, tenant, value)).await.map(Json)
}

fn counted(app: &App, tenant: String, body: Value) -> Result<InputTokens, ApiError> {
    let key = app.keys.of_tenant(&tenant)?;
    let context = RequestContext {
        engine: app.engine.as_ref(),
        caller: Caller { response_id: String::new(), tenant },
        request_id: &RequestId::default(),
        client_id: None,
        memory: None,
        names: app.model_names,
        templates: app.request_templates,
        responses: &app.responses,
        mcp: app.mcp.as_ref(),
        key: &key,
    };
    let mut wire = ResponsesRequest::read(body)?;
    let input = conversation::of(&mut wire, &context)?.items;
    let (batch, _) = lowered(&wire, &History::of(&input, &context)?.items, &context)?;
    let mut input_tokens = 0;
    for mut prompt in batch.prompts {
        let model = prompt.model.as_deref();
        app.media_urls.fetch(&mut prompt.input, context.engine, (model, &context.caller.tenant))?;
        input_tokens += context.engine.tokenize(model, &prompt.input, AddSpecial::Yes)?.len();
    }
    Ok(InputTokens { object: "response.input_tokens", input_tokens })
}
