//! `GET /v1/responses`: the Responses API on a WebSocket. A message is `response.create` with the fields of a request;
//! replies are the events of its stream.
//!
//! Invariant: one response at a time: messages wait for their turn, and a few of them only. The end of the connection
//! cancels what it started.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, Stream, StreamExt};
use serde_json::{Map, Value, json};

use super::ResponsesApi;
use crate::api::{Origin, Submitted, submitted_from};
use crate::app::App;
use crate::auth::Tenant;
use crate::connection_memory::ConnectionMemory;
use crate::error::ApiError;
use crate::limits::Reading;
use crate::request_id::RequestId;
use crate::response::{Frame, frames, openai};
use crate::socket::{self, Closed};
use crate::wire::json::parse;

/// Most messages that wait for their turn; the others stay in the socket.
const WAITING_MAX: usize = 4;
const PATH: &str = "/v1/responses";

/// Accepts a connection.
pub async fn connect(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|why| {
        let message = format!("GET {PATH} is a WebSocket, and POST sends a request: {why}");
        ApiError::invalid("upgrade", message)
    })?;
    Ok(socket::bounded(upgrade, &app.bodies).on_upgrade(move |socket| {
        let memory = Arc::<ConnectionMemory>::default();
        let origin = Origin { memory: Some(Arc::clone(&memory)), ..Origin::new(request_id, tenant.0) };
        let (to_client, from_client) = socket.split();
        let connection =
            Connection { app, origin, headers, memory, to_client, from_client, waiting: VecDeque::new() };
        connection.serve()
    }))
}

/// One connection.
struct Connection {
    app: Arc<App>,
    origin: Origin,
    headers: HeaderMap,
    memory: Arc<ConnectionMemory>,
    to_client: SplitSink<WebSocket, Message>,
    from_client: SplitStream<WebSocket>,
    waiting: VecDeque<Received>,
}

/// A message that was received, and what it takes of the budget of bodies.
type Received = Result<(Message, Reading), ApiError>;

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
            None => next_message(&self.app, &mut self.from_client).await?,
        };
        self.respond(received).await
    }

    /// Responds to one message.
    async fn respond(&mut self, received: Received) -> Result<(), Closed> {
        let request = received.and_then(|(message, _reserved)| Request::read(&message));
        let Request { body, lane, previous } = match request {
            Ok(request) => request,
            Err(error) => return self.send(failure(&error), None).await,
        };
        let trace = self.app.traces.as_ref().map(|traces| traces.begin(&self.headers, "GET", PATH));
        let origin = Origin { trace, ..self.origin.clone() };
        let submitted = submitted_from::<ResponsesApi>(&self.app, Value::Object(body), origin).await;
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
                message = next_message(&self.app, &mut self.from_client), if self.waiting.len() < WAITING_MAX => {
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

/// The client's next message.
async fn next_message(app: &App, from_client: &mut SplitStream<WebSocket>) -> Result<Received, Closed> {
    loop {
        let message = socket::next(from_client).await?;
        let bytes: &[u8] = match &message {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return Err(Closed(None)),
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        let reserved = app.bodies.message(bytes).await;
        return Ok(reserved.map(|reserved| (message, reserved)));
    }
}

/// A request for a response.
struct Request {
    body: Map<String, Value>,
    /// Repeated in every event of the response.
    lane: Option<String>,
    previous: Option<String>,
}

impl Request {
    fn read(message: &Message) -> Result<Self, ApiError> {
        let text: &[u8] = match message {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) => bytes,
            Message::Close(_) | Message::Ping(_) | Message::Pong(_) => &[],
        };
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
