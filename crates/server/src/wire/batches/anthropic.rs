//! `/v1/messages/batches`, as in Anthropic's API.

use std::collections::BTreeSet;

use jiff::Timestamp;
use omnibus_batches::{Batch, Counts, Status, check_body};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, honoured};

/// Fields of a new batch.
pub const CREATE: &[Field] =
    &[honoured("requests", "up to 100,000 requests: `custom_id`, and `params` as on /v1/messages")];

const REQUEST: &[Field] = &[
    honoured("custom_id", "1 to 64 letters, digits, `_` and `-`; each once"),
    honoured("params", "as on /v1/messages; checked when the request runs"),
];

/// The path of each request.
pub const ENDPOINT: &str = "/v1/messages";

/// Reads a body: each request as a line of a file.
pub fn read_lines(body: Value, most: usize) -> Result<Vec<String>, ApiError> {
    let mut fields = Fields::tolerant(body, "", &[CREATE])?;
    let requests = fields.list("requests")?;
    let requests = fields.required("requests", requests)?;
    if requests.is_empty() || requests.len() > most {
        let message = format!("`requests` must have 1 to {most} entries, not {}", requests.len());
        return Err(ApiError::invalid("requests", message));
    }
    let (mut lines, mut ids) = (Vec::with_capacity(requests.len()), BTreeSet::new());
    for (index, request) in requests.into_iter().enumerate() {
        let mut fields = Fields::tolerant(request, &format!("requests[{index}]"), &[REQUEST])?;
        let custom_id = fields.text("custom_id")?;
        let custom_id = fields.required("custom_id", custom_id)?;
        let at = fields.at("custom_id");
        if !is_id(&custom_id) {
            let message = format!("`{at}` must be 1 to 64 letters, digits, `_` and `-`");
            return Err(ApiError::invalid(at, message));
        }
        let params = fields.object("params")?;
        let params = Value::Object(fields.required("params", params)?);
        check_body(&params).map_err(|error| {
            let message = error.message.replace("body", "params");
            ApiError::invalid(fields.at("params"), message)
        })?;
        lines.push(format!("{}\n", json!({"custom_id": custom_id, "url": ENDPOINT, "body": params})));
        if !ids.insert(custom_id) {
            return Err(ApiError::invalid(&at, format!("`{at}` is there twice")));
        }
    }
    Ok(lines)
}

fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

/// Which batches to list.
#[derive(Debug, Default, Deserialize)]
#[allow(missing_docs)]
pub struct MessageBatchQuery {
    pub limit: Option<usize>,
    pub before_id: Option<String>,
    pub after_id: Option<String>,
}

/// A batch.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct MessageBatch {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub processing_status: &'static str,
    pub request_counts: MessageBatchCounts,
    pub created_at: String,
    pub expires_at: String,
    pub ended_at: Option<String>,
    pub cancel_initiated_at: Option<String>,
    pub archived_at: Option<String>,
    pub results_url: Option<String>,
}

/// What became of a batch's requests. All but the first are 0 until it has ended.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct MessageBatchCounts {
    pub processing: usize,
    pub succeeded: usize,
    pub errored: usize,
    pub canceled: usize,
    pub expired: usize,
}

impl From<Batch> for MessageBatch {
    fn from(batch: Batch) -> Self {
        let has_ended = batch.status.is_end();
        let Counts { succeeded, failed, cancelled, expired } =
            if has_ended { batch.counts } else { Counts::default() };
        Self {
            kind: "message_batch",
            processing_status: match batch.status {
                Status::Cancelling => "canceling",
                _ if has_ended => "ended",
                _ => "in_progress",
            },
            request_counts: MessageBatchCounts {
                processing: if has_ended { 0 } else { batch.total },
                succeeded,
                errored: failed,
                canceled: cancelled,
                expired,
            },
            created_at: time(batch.request.created_at),
            expires_at: time(batch.request.expires_at),
            ended_at: batch.ended_at().map(time),
            cancel_initiated_at: batch.times.cancelling.map(time),
            archived_at: None,
            results_url: has_ended.then(|| format!("/v1/messages/batches/{}/results", batch.id)),
            id: batch.id,
        }
    }
}

fn time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// A page of batches.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct MessageBatchList {
    pub data: Vec<MessageBatch>,
    pub has_more: bool,
    pub first_id: Option<String>,
    pub last_id: Option<String>,
}

/// A batch that was removed.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct DeletedMessageBatch {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
}
