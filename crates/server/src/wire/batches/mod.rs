//! `/v1/batches`, as in OpenAI's API; `anthropic` has `/v1/messages/batches`.

pub mod anthropic;

use omnibus_batches::{Batch, Problem, URLS, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::{Field, Fields, honoured};
use super::stored_files::{check_anchor, kept};
use crate::error::ApiError;

/// Fields of a new batch.
pub const CREATE: &[Field] = &[
    honoured("input_file_id", "a file with the purpose `batch`, of at most 100,000 lines"),
    honoured("endpoint", "the `url` of all its lines"),
    honoured("completion_window", "`24h`; other hours `Nh` and days `Nd`, up to 30 days, too"),
    honoured("metadata", "up to 16 labels, returned as sent"),
    honoured("output_expires_after", "`anchor` and `seconds`: how long the files of results are kept"),
];

const EXPIRES_AFTER: &[Field] =
    &[honoured("anchor", "`created_at`"), honoured("seconds", "an hour to 30 days")];

/// Most labels, and most characters of a key and of a value.
const LABELS_MAX: (usize, usize, usize) = (16, 64, 512);
/// Longest window.
const WINDOW_MAX_HOURS: u64 = 30 * 24;

/// A new batch.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct CreateBatch {
    pub input: String,
    pub endpoint: String,
    pub window: String,
    pub window_seconds: u64,
    pub metadata: Option<Map<String, Value>>,
    pub output_expires_after: u64,
}

impl CreateBatch {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[CREATE])?;
        let input = required(&mut fields, "input_file_id")?;
        let endpoint = required(&mut fields, "endpoint")?;
        if !URLS.contains(&endpoint.as_str()) {
            let message = format!("`endpoint` must be one of {}, not {endpoint}", URLS.join(", "));
            return Err(ApiError::invalid("endpoint", message));
        }
        let window = required(&mut fields, "completion_window")?;
        let window_seconds = window_seconds(&window)?;
        let metadata = fields.object("metadata")?;
        metadata.iter().try_for_each(check_labels)?;
        let mut output_expires_after = kept("output_expires_after.seconds", None)?;
        if let Some(mut nested) = fields.nested("output_expires_after", EXPIRES_AFTER)? {
            check_anchor("output_expires_after.anchor", nested.text("anchor")?.as_deref())?;
            let seconds = nested.integer("seconds")?.map(|seconds| u64::try_from(seconds).unwrap_or(0));
            output_expires_after = kept("output_expires_after.seconds", seconds)?;
        }
        Ok(Self { input, endpoint, window, window_seconds, metadata, output_expires_after })
    }
}

fn required(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    let text = fields.text(name)?.filter(|text| !text.is_empty());
    fields.required(name, text)
}

fn window_seconds(window: &str) -> Result<u64, ApiError> {
    let hours =
        |ending: char, of_unit: u64| window.strip_suffix(ending)?.parse::<u64>().ok()?.checked_mul(of_unit);
    let hours =
        hours('h', 1).or_else(|| hours('d', 24)).filter(|hours| (1..=WINDOW_MAX_HOURS).contains(hours));
    let message =
        || format!("`completion_window` must be 24h, or another number of hours up to 30d, not `{window}`");
    hours.map(|hours| hours * 3600).ok_or_else(|| ApiError::invalid("completion_window", message()))
}

fn check_labels(labels: &Map<String, Value>) -> Result<(), ApiError> {
    let (count, key, value) = LABELS_MAX;
    let is_short = |(name, of): (&String, &Value)| {
        name.chars().count() <= key && of.as_str().is_some_and(|text| text.chars().count() <= value)
    };
    match labels.len() <= count && labels.iter().all(is_short) {
        true => Ok(()),
        false => {
            let message = format!(
                "`metadata` must have at most {count} labels: texts of {value} characters under keys of {key}"
            );
            Err(ApiError::invalid("metadata", message))
        }
    }
}

/// Which batches to list.
#[derive(Debug, Default, Deserialize)]
#[allow(missing_docs)]
pub struct BatchQuery {
    pub limit: Option<usize>,
    pub after: Option<String>,
}

/// A batch.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct BatchObject {
    pub id: String,
    pub object: &'static str,
    pub endpoint: String,
    pub model: Option<String>,
    pub errors: Option<BatchErrors>,
    pub input_file_id: String,
    pub completion_window: String,
    pub status: &'static str,
    pub output_file_id: Option<String>,
    pub error_file_id: Option<String>,
    pub created_at: u64,
    pub in_progress_at: Option<u64>,
    pub expires_at: u64,
    pub finalizing_at: Option<u64>,
    pub completed_at: Option<u64>,
    pub failed_at: Option<u64>,
    pub expired_at: Option<u64>,
    pub cancelling_at: Option<u64>,
    pub cancelled_at: Option<u64>,
    pub request_counts: RequestCounts,
    pub usage: BatchUsage,
    pub metadata: Option<Map<String, Value>>,
}

/// Why a batch failed.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct BatchErrors {
    pub object: &'static str,
    pub data: Vec<Problem>,
}

/// How many requests a batch has.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct RequestCounts {
    pub total: usize,
    pub completed: usize,
    pub failed: usize,
}

/// The tokens of a batch.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct BatchUsage {
    pub input_tokens: u64,
    pub input_tokens_details: CachedTokens,
    pub output_tokens: u64,
    pub output_tokens_details: ReasoningTokens,
    pub total_tokens: u64,
}

/// Details of the prompts' tokens.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct CachedTokens {
    pub cached_tokens: u64,
}

/// Details of the generated tokens.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct ReasoningTokens {
    pub reasoning_tokens: u64,
}

impl From<Usage> for BatchUsage {
    fn from(usage: Usage) -> Self {
        let Usage { input_tokens, cached_tokens, output_tokens, reasoning_tokens } = usage;
        Self {
            input_tokens,
            input_tokens_details: CachedTokens { cached_tokens },
            output_tokens,
            output_tokens_details: ReasoningTokens { reasoning_tokens },
            total_tokens: input_tokens + output_tokens,
        }
    }
}

impl From<Batch> for BatchObject {
    fn from(batch: Batch) -> Self {
        let (output_file, error_file) =
            (batch.output_file().map(str::to_owned), batch.error_file().map(str::to_owned));
        let Batch { id, request, model, status, problems, total, counts, times, usage, .. } = batch;
        Self {
            id,
            object: "batch",
            endpoint: request.endpoint,
            model,
            errors: (!problems.is_empty()).then_some(BatchErrors { object: "list", data: problems }),
            input_file_id: request.input,
            completion_window: request.completion_window,
            status: status.name(),
            output_file_id: output_file,
            error_file_id: error_file,
            created_at: request.created_at,
            in_progress_at: times.in_progress,
            expires_at: request.expires_at,
            finalizing_at: times.finalizing,
            completed_at: times.completed,
            failed_at: times.failed,
            expired_at: times.expired,
            cancelling_at: times.cancelling,
            cancelled_at: times.cancelled,
            request_counts: RequestCounts { total, completed: counts.succeeded, failed: counts.failed },
            usage: usage.into(),
            metadata: request.metadata,
        }
    }
}
