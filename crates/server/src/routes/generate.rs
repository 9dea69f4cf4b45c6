//! What chat and text completions do alike: read, lower, submit.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use omnibus_engine::{AddSpecial, Input, Request};
use uuid::Uuid;

use crate::answer::{Choices, Head, Merged, merge};
use crate::app::App;
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::lower::{Caller, Plan, fan};
use crate::request_id::RequestId;
use crate::running::Owner;
use crate::watch::{Api, Watched};

/// An HTTP request, as far as generating goes.
#[derive(Debug, Clone)]
pub struct Origin {
    /// By which API.
    pub api: Api,
    /// Its id.
    pub request_id: RequestId,
    /// What the answer is called, and whose it is.
    pub caller: Caller,
}

impl Origin {
    /// Gives the answer a name of its own: clients may repeat a request's id.
    pub fn new(api: Api, request_id: RequestId, tenant: Tenant) -> Self {
        let prefix = match api {
            Api::Chat => "chatcmpl",
            Api::Completions => "cmpl",
        };
        let answer_id = format!("{prefix}-{}", Uuid::new_v4().simple());
        Self { api, request_id, caller: Caller { answer_id, tenant: tenant.0 } }
    }
}

/// Requests that the engine has taken.
pub struct Submitted {
    /// What all parts of the answer repeat.
    pub head: Head,
    /// How many answers there are.
    pub choices: Choices,
    /// What happens to them.
    pub events: Merged,
}

/// Submits every answer of a plan, or none: what was taken is dropped when a later one is refused.
pub fn submit(app: &App, origin: &Origin, mut plan: Plan) -> Result<Submitted, ApiError> {
    let choices = Choices { count: plan.prompts.len() * plan.n, per_prompt: plan.n };
    let head = head(app, origin, &plan);
    if plan.n > 1 {
        tokenize_once(app, &mut plan)?;
    }
    let requests = fan::out(plan).into_iter().enumerate();
    let events = requests.map(|(index, request)| submit_one(app, origin, index, request));
    Ok(Submitted { head, choices, events: merge(events.collect::<Result<_, _>>()?) })
}

fn submit_one(
    app: &App,
    origin: &Origin,
    index: usize,
    request: Request,
) -> Result<crate::engine::Events, ApiError> {
    let owner = Owner {
        answer_id: origin.caller.answer_id.clone(),
        request_id: origin.request_id.0.clone(),
        index,
        tenant: origin.caller.tenant.clone(),
    };
    let seat = app.running.enter(request.id.clone(), owner);
    let events = app.engine.submit(request)?;
    Ok(Watched::new(events, origin.api, seat).boxed())
}

/// Several answers to one prompt share its tokens.
fn tokenize_once(app: &App, plan: &mut Plan) -> Result<(), ApiError> {
    for prompt in &mut plan.prompts {
        if !matches!(prompt.input, Input::Tokens(_)) {
            let tokens = app.engine.tokenize(prompt.model.as_deref(), &prompt.input, AddSpecial::Yes)?;
            prompt.input = Input::Tokens(tokens);
        }
    }
    Ok(())
}

fn head(app: &App, origin: &Origin, plan: &Plan) -> Head {
    let asked_for = plan.prompts.first().and_then(|prompt| prompt.model.clone());
    let default = || app.engine.models().into_iter().next().map(|model| model.id);
    Head {
        id: origin.caller.answer_id.clone(),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        model: asked_for.or_else(default).unwrap_or_default(),
    }
}

/// Counts a request that was refused before there was anything to watch.
pub fn refused<T>(api: Api, result: Result<T, ApiError>) -> Result<T, ApiError> {
    result.inspect_err(|error| {
        metrics::counter!("omnibus_requests_total", "api" => api.name(), "outcome" => error.outcome())
            .increment(1);
    })
}

/// What a route does with its body, off the threads that serve connections.
pub async fn submitted<T: Send + 'static>(
    app: &Arc<App>,
    request: axum::extract::Request,
    api: Api,
    work: impl FnOnce(&App, &Origin, serde_json::Value) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let extensions = request.extensions();
    let id = extensions.get::<RequestId>().cloned().unwrap_or(RequestId(String::new()));
    let tenant = extensions.get::<Tenant>().cloned().unwrap_or(Tenant(String::new()));
    let origin = Origin::new(api, id, tenant);
    let body = crate::limits::json_body(request, &app.limits).await;
    let app = Arc::clone(app);
    let result = match body {
        Ok(body) => crate::app::blocking(move || work(&app, &origin, crate::wire::json::parse(&body)?)).await,
        Err(error) => Err(error),
    };
    refused(api, result)
}
