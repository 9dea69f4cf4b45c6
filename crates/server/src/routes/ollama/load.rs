//! What chats and completions share: their delivery, and requests that only load a model.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};

use super::served;
use crate::api::{Api, Origin, generate_from};
use crate::app::{App, blocking};
use crate::engine::Lease;
use crate::error::ApiError;
use crate::response::Delivery;
use crate::response::ollama::{OllamaFramer, Shape};
use crate::wire::generation::Streaming;
use crate::wire::ollama::Load;
use crate::wire::ollama::keep_alive::KeepAlive;

/// The handler of a generation route, whose requests without input load a model.
pub async fn generate_or_load<A: Api>(
    app: Arc<App>,
    request: Request,
    shape: Shape,
) -> Result<Response, ApiError> {
    let origin = Origin::of(&request);
    let body = app.bodies.untyped_json(request).await?;
    // It takes room until its answer begins.
    let (value, _reading) = blocking(move || body.parse()).await?;
    match Load::of(&value, A::INPUT_FIELD)? {
        Some(load) => loaded(&app, &origin, load, shape).await,
        None => {
            let (keep_alive, model) = (KeepAlive::of(&value)?, A::model(&value, &app));
            // While it is leased: a shorter time to live that it had may end at any moment.
            let lease = app.queued_lease(&origin.tenant, origin.class, model.as_deref()).await?;
            app.engine.set_ttl(model.as_deref(), keep_alive.time_to_live());
            let response = generate_from::<A>(&app, value, origin).await;
            drop(lease);
            response
        }
    }
}

/// How a generation is delivered.
pub fn delivery(streaming: Streaming) -> Delivery {
    match streaming {
        Streaming::Off => Delivery::Full,
        Streaming::On(_) => Delivery::Lines,
    }
}

async fn loaded(app: &App, origin: &Origin, load: Load, shape: Shape) -> Result<Response, ApiError> {
    let models = app.engine.models();
    let (_, name) = served::find(&models, &load.model).ok_or_else(|| served::missing(&load.model))?;
    let (lease, done_reason) = match load.keep_alive.unloads() {
        true => {
            app.keys.of_tenant(&origin.tenant)?.check_model(Some(name), app.engine.as_ref())?;
            (Lease::default(), "unload")
        }
        false => (app.queued_lease(&origin.tenant, origin.class, Some(name)).await?, "load"),
    };
    app.engine.set_ttl(Some(name), load.keep_alive.time_to_live());
    drop(lease);
    Ok(OllamaFramer::new(load.model, shape).loaded(done_reason).into_response())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_body_without_input_loads() {
        let is_load = |body: Value| Load::of(&body, "messages").unwrap().is_some();
        assert!(is_load(json!({"model": "m"})) && is_load(json!({"model": "m", "messages": []})));
        assert!(is_load(json!({"model": "m", "messages": null, "options": {"num_ctx": 1}})));
        assert!(!is_load(json!({"model": "m", "messages": [{"role": "user"}]})));
        assert!(!is_load(json!({"model": "m", "messages": 3})));
        assert!(!is_load(json!({"model": "m", "suffix": "the end of a file"})));
        assert_eq!(Load::of(&json!({}), "messages").unwrap_err().param(), Some("model"));
    }
}
