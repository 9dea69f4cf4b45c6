//! A request as the scheduler gets it, and why it may be rejected.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Microseconds since the engine started. Passed in, never read from a clock.
pub type Tick = u64;

/// An index into the vocabulary.
pub type Token = u32;

/// One sequence, for as long as the scheduler lives. Lower is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SequenceId(pub u64);

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Goal {
    /// New tokens after the prompt.
    Generate {
        /// At least one.
        max_new_tokens: usize,
    },
    /// The prompt's own positions: log-probabilities, hidden states, or only its KV blocks. Nothing is sampled, and the
    /// sequence ends when its last position is computed.
    Compute,
}

impl Goal {
    /// The most tokens that are sampled.
    pub fn max_new_tokens(self) -> usize {
        match self {
            Self::Generate { max_new_tokens } => max_new_tokens,
            Self::Compute => 0,
        }
    }

    /// What is left of it after so many new tokens.
    pub fn after(self, tokens: usize) -> Self {
        match self {
            Self::Generate { max_new_tokens } => {
                Self::Generate { max_new_tokens: max_new_tokens.saturating_sub(tokens) }
            }
            Self::Compute => Self::Compute,
        }
    }
}

/// The class of service of a request, under `fair`. It comes before priority, tenant and arrival: offline requests get
/// what online ones leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Class {
    /// A client waits for it: it has latency targets.
    #[default]
    Online,
    /// Batch work. It has no latency targets and a queue limit of its own, and it is preempted first.
    Offline,
}

impl Class {
    pub(crate) const COUNT: usize = 2;
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// At least one token.
    pub prompt: Vec<Token>,
    /// What it is for.
    pub goal: Goal,
    /// Its class of service.
    pub class: Class,
    /// Higher goes first, for schedules with priorities: one more is worth arriving ten seconds earlier. `fcfs` ignores
    /// it.
    pub priority: i32,
    /// The deadline.
    pub deadline: Option<Tick>,
    /// Only requests of equal salt share blocks.
    pub cache_salt: u128,
    /// Most leading tokens whose blocks it may share. What comes after them is computed, though it may be cached.
    pub max_cached_tokens: usize,
    /// Half of the SHA-256 of the adapter's content; zero for none. Only requests of equal adapter share blocks.
    pub adapter: u128,
    /// Content that stands for some tokens of the prompt (an image, a sound): the position of the first such token and
    /// a hash of the content. Ascending. From there on, only requests of equal content share blocks.
    pub mm_hashes: Vec<(usize, u128)>,
    /// Positions of the prompt whose tokens attend to each other in both directions: ascending and apart. One step computes
    /// all of a span, and no cached prefix ends inside one.
    pub spans: Vec<Range<usize>>,
    /// Message boundaries of the prompt, in tokens. States are checkpointed at the last of them.
    pub boundaries: Vec<usize>,
    /// Positions that an earlier request of the same conversation should share: those before the newest message, without
    /// the system prompt that many conversations share. Empty if there are none. A prompt that differs there from a
    /// cached one has a changed history.
    pub history: Range<usize>,
    /// The session: its blocks stay pinned for the next turn. Two different continuations of a turn are both kept.
    pub session: Option<u128>,
    /// The tenant. No tenant can fill the queue against the others, and `fair` schedules tenants round-robin.
    pub tenant: u64,
}

impl Request {
    /// A request that generates, with default parameters.
    pub fn new(prompt: Vec<Token>, max_new_tokens: usize) -> Self {
        Self::with_goal(prompt, Goal::Generate { max_new_tokens })
    }

    /// A request with default parameters.
    pub fn with_goal(prompt: Vec<Token>, goal: Goal) -> Self {
        let (mm_hashes, spans, boundaries) = Default::default();
        Self {
            prompt,
            goal,
            class: Class::Online,
            priority: 0,
            deadline: None,
            cache_salt: 0,
            max_cached_tokens: usize::MAX,
            adapter: 0,
            mm_hashes,
            spans,
            boundaries,
            history: 0..0,
            session: None,
            tenant: 0,
        }
    }

    /// The most tokens the sequence can grow to.
    pub fn max_tokens(&self) -> usize {
        self.prompt.len().saturating_add(self.goal.max_new_tokens())
    }

    /// The most positions that are computed: the last sampled token's never is.
    pub(crate) fn max_computed(&self) -> usize {
        match self.goal {
            Goal::Generate { .. } => self.max_tokens() - 1,
            Goal::Compute => self.prompt.len(),
        }
    }
}

/// What a lookup needs of a request besides its tokens.
#[derive(Debug, Clone)]
pub(crate) struct LookupContext {
    pub(crate) salt: u128,
    /// [`Request::history`].
    pub(crate) history: Range<usize>,
}

/// Why a request is rejected. All but `QueueFull` are permanent.
#[derive(Debug, Clone, Error, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Rejection {
    #[error("a request needs a prompt and room for one new token")]
    Empty,
    #[error("needs {needed} tokens of context; at most {total} fit, so shorten the prompt or request fewer")]
    TooLong { needed: usize, total: usize },
    #[error(
        "{span} tokens of the prompt have to be computed in one step, and a step of this server has memory for \
         {limit} such tokens; send a smaller image or a shorter prompt"
    )]
    SpanTooLong { span: usize, limit: usize },
    #[error("{queued} requests are waiting, and the queue holds {limit}; try again later")]
    QueueFull { queued: usize, limit: usize },
}
