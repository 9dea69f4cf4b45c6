//! Records of requests and of what their answers said, for `omnibus replay`: one file each, in a folder.
//!
//! Invariant: a request never waits for its record: bodies are shared while they pass, and a thread of its own writes. When
//! it falls behind, records are left out and counted. The folder's size is bounded. Keys are not written.

mod passing;
mod record;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

pub use record::{Record, RecordedAnswer};

use crate::answer::AnswerFormat;
use crate::request_id::RequestId;
use passing::{Passing, Watched};
use writer::Writer;

/// The headers that are kept: those that change an answer or say what sent it. None holds a secret.
const HEADERS: &[&str] =
    &["content-type", "accept", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta"];

/// Writes records into a folder.
#[derive(Clone)]
pub struct Records(Arc<Writer>);

impl fmt::Debug for Records {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Records")
    }
}

impl Records {
    /// Records in a folder, which is made if missing. The oldest are removed above this many bytes.
    pub fn in_folder(folder: &Path, most_bytes: u64) -> io::Result<Self> {
        Writer::start(folder, most_bytes).map(|writer| Self(Arc::new(writer)))
    }

    /// Waits until what was recorded so far is written.
    pub fn flush(&self) {
        self.0.flush();
    }
}

/// A request and its answer, as they passed.
struct Exchange {
    arrived: SystemTime,
    since: Instant,
    path: String,
    request_id: String,
    format: AnswerFormat,
    headers: BTreeMap<String, String>,
    sent: Passing,
    status: StatusCode,
}

/// Records the requests of APIs whose answers can be read.
pub async fn layer(State(records): State<Option<Records>>, request: Request, next: Next) -> Response {
    let format = AnswerFormat::of(request.uri().path()).filter(|_| request.method() == Method::POST);
    let (Some(records), Some(format)) = (records, format) else { return next.run(request).await };
    let mut exchange = Exchange {
        arrived: SystemTime::now(),
        since: Instant::now(),
        path: request.uri().path().to_owned(),
        request_id: request.extensions().get::<RequestId>().cloned().unwrap_or_default().0,
        format,
        headers: kept(request.headers()),
        sent: Passing::default(),
        status: StatusCode::OK,
    };
    let sent = exchange.sent.clone();
    let response = next.run(request.map(|body| Body::new(Watched::new(body, sent, |_| ())))).await;
    exchange.status = response.status();
    if matches!(exchange.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return response;
    }
    let write = move |answered: Passing| records.0.write(exchange, answered.take());
    response.map(|body| Body::new(Watched::new(body, Passing::default(), write)))
}

fn kept(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |name: &&str| Some(((*name).to_owned(), headers.get(*name)?.to_str().ok()?.to_owned()));
    HEADERS.iter().filter_map(text).collect()
}
