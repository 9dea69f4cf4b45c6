//! `GET /v1/responses`: the Responses API on a WebSocket. A message is `response.create` with the fields of a request;
//! replies are the events of its stream.
//!
//! Invariant: one response at a time: messages wait for their turn, a few small ones received and the others in the
//! connection. The end of the connection cancels what it started.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::{SinkExt, Stream, StreamExt};
use serde_json::{Map, Value, json};

use super::ResponsesApi;
use crate::api::{Origin, Submitted, submitted_from};
use crate::app::App;
use crate::auth::Tenant;
use crate::connection_memory::ConnectionMemory;
use crate::error::ApiError;
use crate::request_id::RequestId;
use crate::response::{Frame, frames, openai};
use crate::socket::{Closed, FromClient, Message, NoUpgrade, Received, ToClient, Upgrade};
use crate::wire::json::parse;

/// Most small messages that are received before their turn.
const WAITING_MAX: usize = 4;
const PATH: &str = "/v1/responses";

/// Accepts a connection.
pub async fn connect(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    upgrade: Result<Upgrade, NoUpgrade>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|why| {
        let message = format!("GET {PATH} is a WebSocket, and POST sends a request: {why}");
        ApiError::invalid("upgrade", message)
    })?;
    let memory = Arc::<ConnectionMemory>::default();
    let origin = Origin { memory: Some(Arc::clone(&memory)), ..Origin::new(request_id, tenant.0) };
    let of = Arc::clone(&app);
    Ok(upgrade.serve(&app.bodies, move |to_client, from_client| {
        let waiting = VecDeque::new();
        Connection { app: of, origin, headers, memory, to_client, from_client, waiting }.serve()
    }))
}

/// One connection.
struct Connection {
    app: Arc<App>,
    origin: Origin,
    headers: HeaderMap,
    memory: Arc<ConnectionMemory>,
    to_client: ToClient,
    from_client: FromClient,
    waiting: VecDeque<Received>,
}

impl Connection {
    async fn serve(mut self) {
        loop {
            if let Err(Closed(reason)) = self.respond_to_next().await {
                if let Some(reason) = reason {
                    _ = self.to_client.send(reason).await;
                }
                return;
            }
        }
    }

    async fn respond_to_next(&mut self) -> Result<(), Closed> {
        let received = match self.waiting.pop_front() {
            Some(received) => received,
            None => self.from_client.next().await?,
        };
        self.respond(received).await
    }

    /// Responds to one message.
    async fn respond(&mut self, received: Received) -> Result<(), Closed> {
        let request = received.read(&self.app.bodies, Request::read).await;
        let (Request { body, lane, previous }, reading) = match request {
            Ok(request) => request,
            Err(error) => return self.send(failure(&error), None).await,
        };
        let trace = self.app.traces.as_ref().map(|traces| traces.begin(&self.headers, "GET", PATH));
        let origin = Origin { trace, ..self.origin.clone() };
        let submitted = submitted_from::<ResponsesApi>(&self.app, Value::Object(body), origin).await;
        drop(reading);
        let outcome = match submitted {
            Ok(Submitted { framer, events, choices, .. }) => {
                let keep_alive = self.app.keep_alive;
                self.stream(frames(framer, events, choices, keep_alive), lane.as_deref()).await?
            }
            Err(error) => {
                self.send(failure(&error), lane.as_deref()).await?;
                Outcome::Failed
            }
        };
        if let (Outcome::Failed, Some(previous)) = (outcome, previous) {
            self.memory.evict(&previous);
        }
        Ok(())
    }

    /// Sends the frames of a response, and receives meanwhile: a client that leaves ends its response.
    async fn stream(
        &mut self,
        frames: impl Stream<Item = Frame>,
        lane: Option<&str>,
    ) -> Result<Outcome, Closed> {
        let mut frames = pin!(frames);
        let mut outcome = Outcome::Complete;
        loop {
            tokio::select! {
                frame = frames.next() => {
                    let Some(frame) = frame else { return Ok(outcome) };
                    if frame.event == Some("response.failed") {
                        outcome = Outcome::Failed;
                    }
                    self.send(frame.data, lane).await?;
                }
                message = self.from_client.next_small(), if self.waiting.len() < WAITING_MAX => {
                    self.waiting.push_back(message?);
                }
            }
        }
    }

    /// Sends an event, with the lane of its request.
    async fn send(&mut self, event: String, lane: Option<&str>) -> Result<(), Closed> {
        let event = match (lane, event.strip_prefix('{')) {
            (Some(lane), Some(fields)) => format!("{{\"stream_id\":{},{fields}", Value::from(lane)),
            _ => event,
        };
        self.to_client.send(Message::text(event)).await.map_err(|_| Closed(None))
    }
}

/// How a response ended.
enum Outcome {
    Complete,
    Failed,
}

/// A request for a response.
struct Request {
    body: Map<String, Value>,
    /// Repeated in every event of the response.
    lane: Option<String>,
    previous: Option<String>,
}

impl Request {
    fn read(text: &[u8]) -> Result<Self, ApiError> {
        let Value::Object(mut body) = parse(text)? else {
            return Err(ApiError::malformed("a message must be an object"));
        };
        match body.remove("type") {
            Some(Value::String(kind)) if kind == "response.create" => {}
            Some(other) => {
                return Err(ApiError::unsupported(
                    "type",
                    format!("`type` must be response.create, not {other}"),
                ));
            }
            None => return Err(ApiError::invalid("type", "`type` is missing")),
        }
        for (name, only) in [("stream", true), ("background", false)] {
            if body.remove(name).is_some_and(|value| !value.is_null() && value != Value::Bool(only)) {
                return Err(ApiError::unsupported(name, format!("`{name}` is {only} on a WebSocket")));
            }
        }
        body.insert("stream".to_owned(), true.into());
        let lane = match body.remove("stream_id") {
            None | Some(Value::Null) => None,
            Some(Value::String(lane)) => Some(lane),
            Some(_) => return Err(ApiError::invalid("stream_id", "`stream_id` must be a string")),
        };
        let previous = body.get("previous_response_id").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { body, lane, previous })
    }
}

/// The event of a request that was refused.
fn failure(error: &ApiError) -> String {
    let body: Value = serde_json::from_str(&openai::error_body(error).into_text()).unwrap_or_default();
    json!({"type": "error", "status": error.kind().status().as_u16(), "error": body.get("error")}).to_string()
}
