//! The outcome of a step, as the engine reports it.

use smallvec::{SmallVec, smallvec};

use crate::plan::PlanId;
use crate::request::{Tick, Token};

/// Tokens that one step yields for a sequence. A few need no allocation.
pub type AcceptedTokens = SmallVec<[Token; 4]>;

/// What the engine computed for the oldest plan in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The plan.
    pub plan: PlanId,
    /// One for each sequence that samples, in the order of the plan.
    pub outputs: Vec<SequenceOutput>,
    /// How long the step kept the device busy: from its launch, or the end of the step before if that was later, to
    /// its own end. Without it nothing is learned from the step.
    pub took: Option<Tick>,
}

/// Whether the engine ends a sequence with its new tokens: an end token is among them, or its grammar accepts no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    #[allow(missing_docs)]
    No,
    #[allow(missing_docs)]
    Yes,
}

/// The output of one sequence that samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceOutput {
    /// Tokens: those of the draft that were accepted, then the one sampled after them.
    Accepted {
        /// At least one, and at most [`crate::ScheduledSequence::samples`].
        tokens: AcceptedTokens,
        /// Whether the sequence ends with the last of them. The scheduler knows the length limit itself.
        stop: Stop,
    },
    /// The sequence got this token and others by [`crate::Scheduler::force`] while the step was in flight.
    Superseded,
    /// This row alone failed. Its sequence ends; the others are unaffected.
    Failed,
}

impl SequenceOutput {
    /// One token.
    pub fn token(token: Token, stop: Stop) -> Self {
        Self::Accepted { tokens: smallvec![token], stop }
    }
}
