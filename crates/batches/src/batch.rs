//! A batch: what it is of, and how far it is.
//!
//! Invariant: its status moves forward only, see [`Status::may_become`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::format::{Format, Outcome};
use crate::input::Problem;
use crate::usage::Usage;

/// A batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// `batch_…` or `msgbatch_…`
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// Higher is newer.
    pub number: u64,
    /// What it was made of.
    pub request: NewBatch,
    /// The file of results, whose record is there when the batch has ended and it is not empty.
    pub output: String,
    /// The file of results of requests without success, where there are two.
    pub errors: Option<String>,
    /// How far it is.
    pub status: Status,
    /// The model of the first request that names one.
    pub model: Option<String>,
    /// Why it failed.
    pub problems: Vec<Problem>,
    /// Requests of the file; 0 until it is checked.
    pub total: usize,
    /// Results so far.
    pub counts: Counts,
    /// Their tokens.
    pub usage: Usage,
    /// When its status changed.
    pub times: Times,
    /// Whether the file of results has any.
    pub has_output: bool,
    /// Whether the file of errors has any.
    pub has_errors: bool,
}

/// What a batch is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewBatch {
    #[allow(missing_docs)]
    pub format: Format,
    /// The id of the file of requests.
    pub input: String,
    /// The path of each request.
    pub endpoint: String,
    /// As the client wrote it.
    pub completion_window: String,
    /// Seconds since 1970.
    pub created_at: u64,
    /// Seconds since 1970.
    pub expires_at: u64,
    /// Seconds that results are kept.
    pub output_expires_after: u64,
    /// How many requests there are, where that is known.
    pub total: usize,
    /// The client's labels.
    pub metadata: Option<Map<String, Value>>,
}

/// How far a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its file is checked, or waits for it.
    Validating,
    /// Its file is not one of requests. Nothing ran.
    Failed,
    /// Its requests run, or wait.
    InProgress,
    /// All have results.
    Finalizing,
    /// All have results, and these can be read.
    Completed,
    /// Its time passed. The results that were there can be read.
    Expired,
    /// Nothing runs any more, and the rest gets its results.
    Cancelling,
    /// It was cancelled. The results that were there can be read.
    Cancelled,
}

impl Status {
    /// Whether nothing follows.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Failed | Self::Completed | Self::Expired | Self::Cancelled)
    }

    /// What may follow.
    pub fn may_become(self, next: Self) -> bool {
        let following: &[Self] = match self {
            Self::Validating => &[Self::InProgress, Self::Failed, Self::Cancelling],
            Self::InProgress => &[Self::Finalizing, Self::Expired, Self::Cancelling],
            Self::Finalizing => &[Self::Completed],
            Self::Cancelling => &[Self::Cancelled],
            Self::Failed | Self::Completed | Self::Expired | Self::Cancelled => &[],
        };
        following.contains(&next)
    }

    /// As OpenAI's API names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Failed => "failed",
            Self::InProgress => "in_progress",
            Self::Finalizing => "finalizing",
            Self::Completed => "completed",
            Self::Expired => "expired",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
        }
    }
}

/// When a batch's status changed, in seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Times {
    pub in_progress: Option<u64>,
    pub finalizing: Option<u64>,
    pub completed: Option<u64>,
    pub failed: Option<u64>,
    pub expired: Option<u64>,
    pub cancelling: Option<u64>,
    pub cancelled: Option<u64>,
}

impl Times {
    fn of(&mut self, status: Status) -> Option<&mut Option<u64>> {
        match status {
            Status::Validating => None,
            Status::Failed => Some(&mut self.failed),
            Status::InProgress => Some(&mut self.in_progress),
            Status::Finalizing => Some(&mut self.finalizing),
            Status::Completed => Some(&mut self.completed),
            Status::Expired => Some(&mut self.expired),
            Status::Cancelling => Some(&mut self.cancelling),
            Status::Cancelled => Some(&mut self.cancelled),
        }
    }
}

/// How many results there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Counts {
    pub succeeded: usize,
    pub failed: usize,
    pub cancelled: usize,
    pub expired: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Succeeded => self.succeeded += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Cancelled => self.cancelled += 1,
            Outcome::Expired => self.expired += 1,
        }
    }

    /// Of any outcome.
    pub fn all(self) -> usize {
        self.succeeded + self.failed + self.cancelled + self.expired
    }
}

impl Batch {
    /// When it ended, in seconds since 1970.
    pub fn ended_at(&self) -> Option<u64> {
        let Times { completed, failed, expired, cancelled, .. } = self.times;
        completed.or(failed).or(expired).or(cancelled)
    }

    /// The id of the file of results, once it can be read.
    pub fn output_file(&self) -> Option<&str> {
        self.has_output.then_some(self.output.as_str())
    }

    /// The id of the file of errors, once it can be read.
    pub fn error_file(&self) -> Option<&str> {
        self.errors.as_deref().filter(|_| self.has_errors)
    }

    /// Whether a file is needed.
    pub(crate) fn uses(&self, file: &str) -> bool {
        !self.status.is_end() && self.request.input == file
    }

    /// Moves to a status that may follow; false if it may not.
    pub(crate) fn advance(&mut self, next: Status, now: u64) -> bool {
        if !self.status.may_become(next) {
            return false;
        }
        self.status = next;
        if let Some(time) = self.times.of(next) {
            *time = Some(now);
        }
        true
    }
}
