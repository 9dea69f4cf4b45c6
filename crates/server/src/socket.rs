//! What the WebSockets of all routes have in common: how large a message may be.

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use futures::StreamExt;
use futures::stream::SplitStream;

use crate::limits::Bodies;

/// Most bytes of a message. It is collected before the server sees it, outside of the room that bodies wait for, so that it is less than
/// a body may have.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// The upgrade of a connection whose messages are bounded.
pub fn bounded(upgrade: WebSocketUpgrade, bodies: &Bodies) -> WebSocketUpgrade {
    let most = bodies.most_bytes().min(MESSAGE_BYTES_MAX);
    upgrade.max_message_size(most).max_frame_size(most)
}

/// The end of a connection, and what the client is sent about it.
#[derive(Default)]
pub struct Closed(pub Option<Message>);

/// The client's next message.
pub async fn next(from_client: &mut SplitStream<WebSocket>) -> Result<Message, Closed> {
    let message = from_client.next().await.ok_or(Closed(None))?;
    message.map_err(|error| Closed(reason(error)))
}

/// A message that is too large ends its connection.
fn reason(error: axum::Error) -> Option<Message> {
    let error = error.into_inner().downcast::<tungstenite::Error>().ok()?;
    let tungstenite::Error::Capacity(_) = *error else { return None };
    let reason = format!("a message has at most {MESSAGE_BYTES_MAX} bytes; send more by POST");
    Some(Message::Close(Some(CloseFrame { code: close_code::SIZE, reason: reason.into() })))
}
