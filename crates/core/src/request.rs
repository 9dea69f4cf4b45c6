//! What a client asks for, and why it may be refused before it is queued.

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

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// At least one token.
    pub prompt: Vec<Token>,
    /// At least one.
    pub max_new_tokens: usize,
    /// Higher goes first, where the schedule looks at it: one more is as good as having come ten seconds earlier.
    /// `fcfs` does not look at it.
    pub priority: i32,
    /// When nobody will be waiting for the answer any more.
    pub deadline: Option<Tick>,
    /// Only requests of equal salt share blocks.
    pub cache_salt: u64,
    /// What changes the model's weights for this request; zero for nothing. Only requests of equal adapter share
    /// blocks.
    pub adapter: u64,
    /// Content that stands for some tokens of the prompt (an image, a sound): the position of the first such token and
    /// a hash of the content. Ascending. From there on, only requests of equal content share blocks.
    pub mm_hashes: Vec<(usize, u128)>,
    /// Where messages of the prompt end, in tokens. States are kept for the last of them.
    pub boundaries: Vec<usize>,
    /// Positions that an earlier request of the same conversation should have had too: what came before the newest
    /// message, without the beginning that many conversations share. Empty if there are none. A prompt that is
    /// found to differ there from what is remembered has a history that was changed.
    pub history: Range<usize>,
    /// The conversation it is a turn of: what it leaves behind is kept for the next one. Two that continue the same
    /// turn differently are both kept.
    pub session: Option<u64>,
    /// Draft tokens that each decode step verifies, where there is room: [`crate::Scheduler::set_draft_tokens`].
    pub draft_tokens: usize,
    /// Who asks. No tenant can fill the queue against the others, and `fair` takes turns among them.
    pub tenant: u64,
}

impl Request {
    /// A request with nothing special about it.
    pub fn new(prompt: Vec<Token>, max_new_tokens: usize) -> Self {
        let (mm_hashes, boundaries) = Default::default();
        Self {
            prompt,
            max_new_tokens,
            priority: 0,
            deadline: None,
            cache_salt: 0,
            adapter: 0,
            mm_hashes,
            boundaries,
            history: 0..0,
            session: None,
            draft_tokens: 0,
            tenant: 0,
        }
    }

    /// The most tokens the sequence can grow to.
    pub fn max_tokens(&self) -> usize {
        self.prompt.len().saturating_add(self.max_new_tokens)
    }
}

/// Why a request is not taken. All but `QueueFull` will be so for ever.
#[derive(Debug, Clone, Error, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Rejection {
    #[error("a request needs a prompt and room for one new token")]
    Empty,
    #[error("needs {needed} tokens of context; at most {total} fit, so shorten the prompt or ask for fewer")]
    TooLong { needed: usize, total: usize },
    #[error("{queued} requests are waiting, and the queue holds {limit}; try again later")]
    QueueFull { queued: usize, limit: usize },
}
