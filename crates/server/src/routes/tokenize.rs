//! `POST /tokenize` and `POST /detokenize`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use omnibus_engine::{Failure, Input};

use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::lower;
use crate::wire::tokenize::{DetokenizeRequest, Detokenized, Strings, TokenizeRequest, Tokenized};

/// Tokenizes a text or a conversation.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Json<Tokenized>, ApiError> {
    let Tenant(tenant) = request.extensions().get::<Tenant>().cloned().unwrap_or_default();
    let body = app.bodies.json(request).await?;
    let read = move || {
        let (value, reading) = body.parse()?;
        Ok((TokenizeRequest::read(value)?, reading))
    };
    let (wire, _reading) = blocking(read).await?;
    let _lease = app.lease(&tenant, wire.model.as_deref()).await?;
    blocking(move || tokenized(&app, &tenant, wire)).await.map(Json)
}

fn tokenized(app: &App, tenant: &str, wire: TokenizeRequest) -> Result<Tokenized, ApiError> {
    let model = wire.model.as_deref();
    let max_model_len = max_model_len(app, model)?;
    let mut input = lower::tokenize::input(wire.source);
    if let Input::Chat(chat) = &input {
        app.request_templates.check(chat)?;
    }
    app.media_urls.fetch(&mut input, app.engine.as_ref(), (model, tenant))?;
    let tokens = app.engine.tokenize(model, &input, lower::tokenize::special(wire.special))?;
    let token_strs = match wire.strings {
        Strings::Omit => None,
        Strings::Return => {
            Some(app.engine.pieces(model, &tokens)?.iter().map(|piece| lossy(piece)).collect())
        }
    };
    Ok(Tokenized { count: tokens.len(), max_model_len, tokens, token_strs })
}

fn lossy(piece: &[u8]) -> String {
    String::from_utf8_lossy(piece).into_owned()
}

fn max_model_len(app: &App, model: Option<&str>) -> Result<usize, ApiError> {
    let models = app.engine.models();
    let found = match model {
        None => models.first(),
        Some(name) => models.iter().find(|info| info.names().any(|served| served == name)),
    };
    let unknown = || Failure::unknown_model(model.unwrap_or_default(), &models);
    let details = found.ok_or_else(unknown)?.details();
    let unloaded = || ApiError::unavailable("the model is not loaded");
    Ok(details.ok_or_else(unloaded)?.max_model_len)
}

/// Detokenizes token ids.
pub async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<Detokenized>, ApiError> {
    let Tenant(tenant) = request.extensions().get::<Tenant>().cloned().unwrap_or_default();
    let body = app.bodies.json(request).await?;
    let read = move || {
        let (value, reading) = body.parse()?;
        Ok((DetokenizeRequest::read(value)?, reading))
    };
    let (wire, _reading) = blocking(read).await?;
    let _lease = app.lease(&tenant, wire.model.as_deref()).await?;
    let work = move || {
        let prompt = app.engine.detokenize(wire.model.as_deref(), &wire.tokens)?;
        Ok(Detokenized { prompt })
    };
    blocking(work).await.map(Json)
}
