//! `POST /v1/messages` and `POST /v1/messages/count_tokens`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use omnibus_engine::{AddSpecial, Input};
use serde_json::Value;

use crate::api::{Api, Prepared, RequestContext};
use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::lower::{self, GenerationBatch};
use crate::mcp::{Approvals, Asked, Loop};
use crate::response::Delivery;
use crate::response::anthropic::MessagesFramer;
use crate::wire::anthropic::response::TokenCount;
use crate::wire::anthropic::tools::ToolUse;
use crate::wire::anthropic::{Display, MessagesRequest, Purpose, Thinking, mcp};
use crate::wire::fields::count_unknown;
use crate::wire::mcp::McpServer;
use crate::wire::web_search::WebSearch;

/// Anthropic's messages.
pub struct MessagesApi;

impl Api for MessagesApi {
    const NAME: &'static str = "messages";
    const ID_PREFIX: &'static str = "msg_";
    const INPUT_FIELD: &'static str = "messages";
    type Framer = MessagesFramer;

    fn model(body: &Value, app: &App) -> Option<String> {
        app.served(body.get("model").and_then(Value::as_str)).map(str::to_owned)
    }

    fn prepare(mut body: Value, context: &RequestContext<'_>) -> Result<Prepared<MessagesFramer>, ApiError> {
        // Without MCP servers, earlier calls are text, as those of other tools of Anthropic's servers.
        if context.mcp.is_some()
            && let Some(Value::Array(messages)) = body.get_mut("messages")
        {
            *messages = mcp::history(std::mem::take(messages), lower::opaque::decode);
        }
        let request = MessagesRequest::read(body, Purpose::Generate)?;
        let delivery = if request.stream { Delivery::Stream } else { Delivery::Full };
        let display = match request.conversation.thinking {
            Thinking::On { display, .. } => display,
            Thinking::Off => Display::Text,
        };
        let (requested, energy) = (request.model.clone(), request.energy);
        let model = context.served(requested.as_deref());
        let (servers, search) = (request.mcp.clone(), request.search.clone());
        let tool_use = request.conversation.tool_use.clone();
        let mut batch = lower::messages::lower(request, model, &context.caller);
        let server_loop = server_loop((&servers, search.as_ref()), &tool_use, &mut batch, context)?;
        let mut header = context.header(&batch);
        header.model = requested.unwrap_or(header.model);
        let framer = MessagesFramer::new(header, context.request_id.clone(), display, energy);
        Ok(Prepared { batch, framer, delivery, server_loop })
    }
}

/// The loop of a request with MCP servers or a search, in a server that has some. Elsewhere the model answers without them,
/// where it can.
fn server_loop(
    (servers, search): (&[McpServer], Option<&WebSearch>),
    tool_use: &ToolUse,
    batch: &mut GenerationBatch,
    context: &RequestContext<'_>,
) -> Result<Option<Loop>, ApiError> {
    let ToolUse::Allowed(_, parallel) = tool_use else { return Ok(None) };
    if context.mcp.is_none() {
        servers.iter().for_each(|server| count_unknown(&server.at));
    }
    let servers = if context.mcp.is_some() { servers } else { &[] };
    let tools =
        context.server_tools(Asked { servers, auto: false, approvals: Approvals::Impossible, search })?;
    context.server_loop(tools, batch, lower::chat::call_limit(*parallel))
}

/// Counts the tokens of the prompt that these messages make.
pub async fn count_tokens(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<TokenCount>, ApiError> {
    let Tenant(tenant) = request.extensions().get::<Tenant>().cloned().unwrap_or_default();
    let body = app.bodies.json(request).await?;
    let (value, _reading) = blocking(move || body.parse()).await?;
    let model = MessagesApi::model(&value, &app);
    let _lease = app.lease(&tenant, model.as_deref()).await?;
    let work = move || {
        let request = MessagesRequest::read(value, Purpose::Count)?;
        app.keys.of_tenant(&tenant)?.check_model(model.as_deref(), app.engine.as_ref())?;
        let mut input = Input::Chat(lower::messages::chat(request.conversation));
        app.media_urls.fetch(&mut input, app.engine.as_ref(), (model.as_deref(), &tenant))?;
        let tokens = app.engine.tokenize(model.as_deref(), &input, AddSpecial::Yes)?;
        Ok(TokenCount { input_tokens: tokens.len() })
    };
    blocking(work).await.map(Json)
}
