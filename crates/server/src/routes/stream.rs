//! `GET /v1/stream`: a WebSocket with many chat completions at once.
//!
//! A message is a chat request with an `id`, or `{"cancel": ID}`. Replies are the chunks of the responses, with the
//! request's id, and `{"id": ID, "done": true}` at the end of each.
//!
//! Invariant: a client that does not read stops its own responses only: their events wait in the engine's channels, which
//! token limits bound. The end of the connection cancels what it started.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::{SinkExt, Stream, StreamExt};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::chat::ChatApi;
use crate::api::{Origin, Submitted, submitted_from};
use crate::app::App;
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::request_id::RequestId;
use crate::response::{Frame, frames, openai};
use crate::socket::{Closed, FromClient, Message, NoUpgrade, Received, ToClient, Upgrade};
use crate::wire::json;

const PATH: &str = "/v1/stream";
/// Most responses of one connection at once.
const RESPONSES_MAX: usize = 256;
/// Replies that wait for the connection.
const REPLIES: usize = 64;
/// How long the end of a connection waits for a client to take the reason.
const CLOSING: Duration = Duration::from_secs(5);

/// Accepts a connection.
pub async fn connect(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    upgrade: Result<Upgrade, NoUpgrade>,
) -> Result<Response, ApiError> {
    let upgrade =
        upgrade.map_err(|why| ApiError::invalid("upgrade", format!("GET {PATH} is a WebSocket: {why}")))?;
    let (origin, of) = (Origin::new(request_id, tenant.0), Arc::clone(&app));
    Ok(upgrade.serve(&app.bodies, move |to_client, from_client| {
        serve(of, origin, headers, (to_client, from_client))
    }))
}

/// The responses that are generated for one connection. Dropping it cancels them.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<BTreeMap<String, AbortHandle>>>);

impl Running {
    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, AbortHandle>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Fails when the id is taken or there are too many.
    fn check(&self, id: &str) -> Result<(), ApiError> {
        self.change(|running| {
            if running.contains_key(id) {
                return Err(ApiError::invalid("id", format!("the id `{id}` is in use")));
            }
            if running.len() >= RESPONSES_MAX {
                let message = format!("a connection has at most {RESPONSES_MAX} requests at once");
                return Err(ApiError::invalid("id", message));
            }
            Ok(())
        })
    }
}

async fn serve(
    app: Arc<App>,
    origin: Origin,
    headers: HeaderMap,
    (mut to_client, mut from_client): (ToClient, FromClient),
) {
    let (replies, mut outbox) = channel::<Message>(REPLIES);
    let mut writer = tokio::spawn(async move {
        while let Some(reply) = outbox.recv().await {
            if to_client.send(reply).await.is_err() {
                return;
            }
        }
    });
    let running = Running::default();
    let closed = loop {
        let message = match received(&mut from_client, &replies).await {
            Ok(message) => message,
            Err(closed) => break closed,
        };
        match message.read(&app.bodies, read).await {
            Ok((command, _reading)) => {
                let trace = app.traces.as_ref().map(|traces| traces.begin(&headers, "GET", PATH));
                let origin = Origin { trace, ..origin.clone() };
                handle(&app, &origin, &running, &replies, command).await;
            }
            Err(error) => _ = reply(&replies, failure(None, &error)).await,
        }
    };
    running.change(|running| running.values().for_each(AbortHandle::abort));
    if let Closed(Some(reason)) = closed
        && replies.try_send(reason).is_ok()
    {
        drop(replies);
        _ = timeout(CLOSING, &mut writer).await;
    }
    writer.abort();
}

/// The client's next message, while the connection is open in both directions.
async fn received(from_client: &mut FromClient, replies: &Sender<Message>) -> Result<Received, Closed> {
    tokio::select! {
        message = from_client.next() => message,
        () = replies.closed() => Err(Closed(None)),
    }
}

/// What a message of the client requests.
async fn handle(
    app: &Arc<App>,
    origin: &Origin,
    running: &Running,
    replies: &Sender<Message>,
    command: Command,
) {
    let (id, result) = match command {
        Command::Cancel(id) => {
            let cancelled = running.change(|running| running.remove(&id));
            let result = match cancelled {
                Some(task) => {
                    task.abort();
                    _ = reply(replies, json!({"id": id, "done": true, "cancelled": true}).to_string()).await;
                    Ok(())
                }
                None => Err(ApiError::invalid("cancel", format!("no request has the id `{id}`"))),
            };
            (id, result)
        }
        Command::Generate { id, body } => {
            (id.clone(), generate(app, origin, running, replies, id, body).await)
        }
    };
    if let Err(error) = result {
        _ = reply(replies, failure(Some(&id), &error)).await;
    }
}

enum Command {
    Cancel(String),
    Generate { id: String, body: Map<String, Value> },
}

fn read(text: &[u8]) -> Result<Command, ApiError> {
    let Value::Object(mut body) = json::parse(text)? else {
        return Err(ApiError::malformed("a message must be an object"));
    };
    if let Some(id) = body.remove("cancel") {
        return id_of(Some(id), "cancel").map(Command::Cancel);
    }
    let id = id_of(body.remove("id"), "id")?;
    body.insert("stream".to_owned(), true.into());
    Ok(Command::Generate { id, body })
}

fn id_of(value: Option<Value>, field: &str) -> Result<String, ApiError> {
    match value {
        Some(Value::String(id)) if !id.is_empty() && id.len() <= 256 => Ok(id),
        Some(Value::Number(number)) => Ok(number.to_string()),
        _ => {
            Err(ApiError::invalid(field, format!("`{field}` must be a string of 1 to 256 bytes or a number")))
        }
    }
}

/// Starts a response. Its chunks are sent by a task of its own.
async fn generate(
    app: &Arc<App>,
    origin: &Origin,
    running: &Running,
    replies: &Sender<Message>,
    id: String,
    body: Map<String, Value>,
) -> Result<(), ApiError> {
    running.check(&id)?;
    let origin = Origin { client_id: Some(id.clone()), ..origin.clone() };
    let keep_alive = app.keep_alive;
    let submitted = submitted_from::<ChatApi>(app, Value::Object(body), origin).await?;
    let Submitted { framer, events, choices, .. } = submitted;
    let (running_by_id, replies) = (running.clone(), replies.clone());
    let frames = frames(framer, events, choices, keep_alive);
    // The task is listed before it can end.
    running.change(|running| {
        let task = tokio::spawn(send_frames(id.clone(), frames, running_by_id, replies));
        running.insert(id, task.abort_handle());
    });
    Ok(())
}

/// Sends a response to its end or that of the connection. Dropping the frames cancels what is left of it.
async fn send_frames(
    id: String,
    frames: impl Stream<Item = Frame>,
    running: Running,
    replies: Sender<Message>,
) {
    let mut frames = pin!(frames);
    while let Some(frame) = frames.next().await {
        let (text, is_last) = message(&id, frame);
        if is_last {
            // The client may use the id again as soon as it has read this.
            running.change(|running| running.remove(&id));
        }
        let sent = reply(&replies, text).await;
        if is_last || sent.is_err() {
            return;
        }
    }
    running.change(|running| running.remove(&id));
}

/// A frame as a message, and whether it is the last. A chunk has the request's id already, as the response's own.
fn message(id: &str, frame: Frame) -> (String, bool) {
    match frame.event {
        _ if frame.data == openai::DONE => (json!({"id": id, "done": true}).to_string(), true),
        None => (frame.data, false),
        // An error ends the response: its frame is small, and has no id.
        Some(_) => {
            let mut error: Map<String, Value> = serde_json::from_str(&frame.data).unwrap_or_default();
            error.insert("id".to_owned(), id.into());
            (Value::Object(error).to_string(), false)
        }
    }
}

fn failure(id: Option<&str>, error: &ApiError) -> String {
    let body: Value = serde_json::from_str(&openai::error_body(error).into_text()).unwrap_or_default();
    json!({"id": id, "error": body.get("error"), "done": true}).to_string()
}

/// Waits while the client does not read.
async fn reply(replies: &Sender<Message>, text: String) -> Result<(), Closed> {
    replies.send(Message::text(text)).await.map_err(|_| Closed(None))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::stream;

    use super::*;

    #[tokio::test]
    async fn a_response_ends_with_its_connection() {
        let read = Cell::new(0);
        let frames = stream::iter(0..100).map(|_| {
            read.set(read.get() + 1);
            Frame { event: None, data: "{}".into() }
        });
        let (replies, outbox) = channel(REPLIES);
        drop(outbox);
        send_frames("a".into(), frames, Running::default(), replies).await;
        assert_eq!(read.get(), 1);
    }
}
