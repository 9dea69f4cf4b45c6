//! Events for clients.

use serde::{Deserialize, Serialize};

use crate::request::{SequenceId, Token};

/// An event for a client. A sequence has any number of `Token`, then one of the others, then none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A new token. Reported once, however often the sequence is preempted.
    Token {
        /// The sequence.
        sequence: SequenceId,
        /// The token.
        token: Token,
    },
    /// The end of a sequence.
    Finished {
        /// The sequence.
        sequence: SequenceId,
        /// The reason.
        reason: FinishReason,
    },
    /// The end of a sequence that could not be computed.
    Failed {
        /// The sequence.
        sequence: SequenceId,
        /// What went wrong.
        failure: Failure,
    },
}

impl Event {
    /// The event's sequence.
    pub fn sequence(&self) -> SequenceId {
        match *self {
            Self::Token { sequence, .. }
            | Self::Finished { sequence, .. }
            | Self::Failed { sequence, .. } => sequence,
        }
    }

    /// True for the last event of a sequence.
    pub fn is_last(&self) -> bool {
        !matches!(self, Self::Token { .. })
    }
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FinishReason {
    /// [`crate::Stop::Yes`].
    Stop,
    /// The request's token limit.
    Length,
    /// All positions of a request for [`crate::Goal::Compute`] are computed.
    Computed,
    /// The request's deadline.
    Deadline,
    /// It was cancelled.
    Cancelled,
}

/// Why a sequence could not be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Failure {
    /// [`crate::SequenceOutput::Failed`].
    Sampling,
    /// Its steps fail even when it is alone in the smallest step.
    Step,
    /// The engine failed it: [`crate::Scheduler::fail`].
    Engine,
}
