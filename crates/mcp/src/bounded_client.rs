//! An HTTP client whose requests of a server end in time.
//!
//! Invariant: a request that the server does not answer is dropped soon after its caller has given up, and when the connection
//! ends; and so is a stream of events that answers it. Each is polled by a task of its own, because the transport of `rmcp` may
//! wait for ever to hand a message on. The stream of a session's own events has no time limit: it lasts as long as the
//! session.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
    StreamableHttpResponseLimits,
};
use sse_stream::Sse;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// What a request may take beyond the time that its answer is waited for.
const SLACK: Duration = Duration::from_millis(500);

/// Events that wait to be handed on.
const EVENTS_QUEUED: usize = 16;

type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The client.
#[derive(Clone)]
pub struct BoundedClient {
    /// What sends.
    pub inner: reqwest::Client,
    /// Longest time of a call.
    pub call: Duration,
    /// Longest time of other requests.
    pub other: Duration,
    /// Its sender ends with the connection.
    pub open: watch::Receiver<()>,
}

impl BoundedClient {
    fn end_of(&self, message: &ClientJsonRpcMessage) -> Instant {
        let is_call = match message {
            JsonRpcMessage::Request(request) => matches!(request.request, ClientRequest::CallToolRequest(_)),
            _ => false,
        };
        Instant::now() + if is_call { self.call } else { self.other } + SLACK
    }
}

/// Waits until a connection ends, or for this time.
async fn over(mut open: watch::Receiver<()>, end: Instant) {
    // Its sender sends nothing.
    _ = timeout_at(end, open.changed()).await;
}

/// Events as a task of their own reads them, until a time.
fn forwarded(events: Events, over: impl Future<Output = ()> + Send + 'static) -> Events {
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUED);
    tokio::spawn(async move {
        let forward = async {
            let mut events = events;
            while let Some(event) = events.next().await {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = forward => {}
            () = sender.closed() => {}
            () = over => {}
        }
    });
    stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))).boxed()
}

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits)
            .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let (client, open, end) = (self.inner.clone(), self.open.clone(), self.end_of(&message));
        let mut posting = JoinSet::new();
        posting.spawn(async move {
            let posted = client.post_message_with_response_limits(
                uri,
                message,
                session_id,
                auth_header,
                custom_headers,
                limits,
            );
            let answer = tokio::select! {
                answer = posted => answer?,
                () = over(open.clone(), end) => {
                    let late = "the server did not answer in time";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, late).into());
                }
            };
            Ok(match answer {
                StreamableHttpPostResponse::Sse(events, session) => {
                    StreamableHttpPostResponse::Sse(forwarded(events, over(open, end)), session)
                }
                answer => answer,
            })
        });
        let ended = || Err(io::Error::other("the request ended").into());
        posting.join_next().await.and_then(Result::ok).unwrap_or_else(ended)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Failure> {
        self.inner.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<Events, Failure> {
        self.inner.get_stream(uri, session_id, last_event_id, auth_header, custom_headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max_sse_event_size: usize,
    ) -> Result<Events, Failure> {
        self.inner
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await
    }
}
