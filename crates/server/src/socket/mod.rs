//! WebSockets: the handshake, and the messages that the routes with WebSockets receive.

mod arriving;
mod frames;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::Request;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream::{SplitSink, SplitStream};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tungstenite::handshake::server::create_response_with_body;
pub use tungstenite::protocol::Message;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use crate::error::ApiError;
use crate::limits::{Bodies, Reading};
use crate::room::Place;
use arriving::{Arriving, Gate, Refused, Turn};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

type Socket = WebSocketStream<Gate<TokioIo<Upgraded>>>;

/// What is sent to the client.
pub type ToClient = SplitSink<Socket, Message>;

/// A request for a WebSocket.
pub struct Upgrade {
    accepted: Response,
    connection: OnUpgrade,
}

/// A request that is none for a WebSocket, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoUpgrade(String);

impl IntoResponse for NoUpgrade {
    fn into_response(self) -> Response {
        ApiError::invalid("upgrade", self.0).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Upgrade {
    type Rejection = NoUpgrade;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoUpgrade> {
        let mut request = Request::new(());
        request.method_mut().clone_from(&parts.method);
        *request.version_mut() = parts.version;
        request.headers_mut().clone_from(&parts.headers);
        let accepted = create_response_with_body(&request, Body::empty);
        let accepted = accepted.map_err(|why| NoUpgrade(why.to_string()))?;
        let connection = parts.extensions.remove::<OnUpgrade>();
        let connection = connection.ok_or_else(|| NoUpgrade("the connection cannot change".to_owned()))?;
        Ok(Self { accepted, connection })
    }
}

impl Upgrade {
    /// Accepts it, and serves the connection in a task.
    pub fn serve<F>(
        self,
        bodies: &Bodies,
        serve: impl FnOnce(ToClient, FromClient) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { accepted, connection } = self;
        let most_bytes = bodies.most_bytes();
        let limits = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .max_frame_size(Some(most_bytes))
            .max_message_size(Some(most_bytes));
        let arriving = Arc::new(Arriving::new(bodies.messages()));
        tokio::spawn(async move {
            let Ok(connection) = connection.await else { return };
            let gate = Gate::new(TokioIo::new(connection), Arc::clone(&arriving));
            let socket = WebSocketStream::from_raw_socket(gate, Role::Server, Some(limits)).await;
            let (to_client, messages) = socket.split();
            serve(to_client, FromClient { messages, arriving, most_bytes }).await;
        });
        accepted
    }
}

/// The end of a connection, and what the client is sent about it.
#[derive(Debug, Default)]
pub struct Closed(pub Option<Message>);

/// A message of the client, with what it takes of the room for those that arrive.
#[derive(Debug)]
pub struct Received {
    message: Message,
    _place: Option<Place>,
}

impl Received {
    /// What `read` makes of it, with what that takes of the room. Waits for that room. The message is gone then.
    pub async fn read<T>(
        self,
        bodies: &Bodies,
        read: impl FnOnce(&[u8]) -> Result<T, ApiError>,
    ) -> Result<(T, Reading), ApiError> {
        let reading = bodies.message(self.text()).await?;
        Ok((read(self.text())?, reading))
    }

    /// Its text, which may be no UTF-8 if it was sent as bytes.
    fn text(&self) -> &[u8] {
        match &self.message {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) => bytes,
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => &[],
        }
    }
}

/// What the client sends.
pub struct FromClient {
    messages: SplitStream<Socket>,
    arriving: Arc<Arriving>,
    most_bytes: usize,
}

impl FromClient {
    /// The next message.
    pub async fn next(&mut self) -> Result<Received, Closed> {
        self.receive(Turn::Now).await
    }

    /// The next message, if it needs no room: others stay in the connection. It can be dropped and called again.
    pub async fn next_small(&mut self) -> Result<Received, Closed> {
        self.receive(Turn::Later).await
    }

    async fn receive(&mut self, turn: Turn) -> Result<Received, Closed> {
        self.arriving.set_turn(turn);
        loop {
            let message = self.messages.next().await.ok_or(Closed(None))?;
            match message.map_err(|error| Closed(self.reason(&error)))? {
                message @ (Message::Text(_) | Message::Binary(_)) => {
                    return Ok(Received { message, _place: self.arriving.take() });
                }
                Message::Close(_) => return Err(Closed(None)),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    /// What the client is sent when its message could not be received.
    fn reason(&self, error: &tungstenite::Error) -> Option<Message> {
        let (code, reason) = match error {
            tungstenite::Error::Capacity(_) => {
                (CloseCode::Size, format!("a message has at most {} bytes", self.most_bytes))
            }
            tungstenite::Error::Io(error) => {
                let refused = error.get_ref()?.downcast_ref::<Refused>()?;
                let code = match refused {
                    Refused::Busy => CloseCode::Again,
                    Refused::Late(_) => CloseCode::Policy,
                };
                (code, refused.to_string())
            }
            _ => return None,
        };
        Some(Message::Close(Some(CloseFrame { code, reason: reason.into() })))
    }
}
