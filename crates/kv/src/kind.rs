//! What the layers of a group cache, and all block and window arithmetic that follows from it.
//!
//! Positions count tokens of a sequence from zero. A logical block `b` holds positions `b · block_size` to
//! `(b + 1) · block_size − 1`, whether or not the sequence still has it.

use std::iter::Chain;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Logical blocks that a cache hit needs: attention sinks, then those in the window.
pub type RequiredBlocks = Chain<Range<usize>, Range<usize>>;

/// What the layers of a group cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CacheKind {
    /// Keys and values of every position.
    Full,
    /// One compressed vector for every position (multi-head latent attention). Blocks count as in [`Self::Full`].
    Latent,
    /// Keys and values of the last positions, and of the first ones (attention sinks).
    SlidingWindow {
        /// Positions a token sees, itself included. At least one.
        tokens: usize,
        /// First positions of the sequence that every token sees as well.
        sinks: usize,
    },
    /// Keys and values of the first positions in an unquantized format: a token at one of them sees all positions
    /// before it here, and a later token sees none here.
    UnquantizedPrefix {
        /// How many positions. At least one.
        tokens: usize,
    },
    /// One state of fixed size for the whole sequence. A block is a slot, and a sequence has one.
    State,
}

impl CacheKind {
    /// True for a recurrent state.
    pub fn is_state(self) -> bool {
        self == Self::State
    }

    /// True if every position is cached and visible to all later ones.
    pub fn is_full(self) -> bool {
        matches!(self, Self::Full | Self::Latent)
    }

    /// False for a window or a prefix of no tokens.
    pub fn is_valid(self) -> bool {
        !matches!(self, Self::SlidingWindow { tokens: 0, .. } | Self::UnquantizedPrefix { tokens: 0 })
    }

    /// True if the token at `position` sees the key at `key`. Never of a state, which has no keys.
    pub fn is_visible(self, position: usize, key: usize) -> bool {
        key <= position
            && match self {
                Self::Full | Self::Latent => true,
                Self::SlidingWindow { tokens, sinks } => key + tokens > position || key < sinks,
                Self::UnquantizedPrefix { tokens } => position < tokens,
                Self::State => false,
            }
    }

    /// Leading logical blocks that hold attention sinks. They are never freed before the sequence ends.
    pub fn sink_blocks(self, block_size: usize) -> usize {
        match self {
            Self::SlidingWindow { sinks, .. } => sinks.div_ceil(block_size),
            Self::Full | Self::Latent | Self::UnquantizedPrefix { .. } | Self::State => 0,
        }
    }

    /// The first logical block, sinks aside, that is visible to `next` or a later position.
    pub fn first_visible_block(self, block_size: usize, next: usize) -> usize {
        match self {
            Self::SlidingWindow { tokens, .. } => next.saturating_sub(tokens - 1) / block_size,
            Self::UnquantizedPrefix { tokens } if next >= tokens => {
                (next / block_size).min(tokens.div_ceil(block_size))
            }
            Self::Full | Self::Latent | Self::UnquantizedPrefix { .. } | Self::State => 0,
        }
    }

    /// Logical blocks after the sinks that no position from `next` on sees.
    pub fn out_of_window_blocks(self, block_size: usize, next: usize) -> usize {
        self.first_visible_block(block_size, next).saturating_sub(self.sink_blocks(block_size))
    }

    /// Of `blocks` leading logical blocks, the first (sinks aside) that must be cached for a hit of all of them. Of a
    /// state, the last: its slot holds the state after all of them.
    pub fn first_required_block(self, block_size: usize, blocks: usize) -> usize {
        match self {
            Self::UnquantizedPrefix { tokens } if blocks * block_size >= tokens => blocks,
            Self::Full | Self::Latent | Self::SlidingWindow { .. } | Self::UnquantizedPrefix { .. } => {
                self.first_visible_block(block_size, blocks * block_size).min(blocks)
            }
            Self::State => blocks.saturating_sub(1),
        }
    }

    /// The logical blocks that a sequence needs which resumes at position `start`, in or right after `blocks` cached
    /// leading blocks.
    pub fn required_blocks(self, block_size: usize, blocks: usize, start: usize) -> RequiredBlocks {
        let (first, end) = match self {
            Self::State => (blocks.saturating_sub(1), blocks),
            Self::Full | Self::Latent | Self::SlidingWindow { .. } | Self::UnquantizedPrefix { .. } => (
                self.first_visible_block(block_size, start),
                self.blocks_for(block_size, blocks * block_size),
            ),
        };
        let first = first.min(end);
        (0..self.sink_blocks(block_size).min(first)).chain(first..end)
    }

    /// False for a logical block that no sequence has in this group.
    pub fn has_block(self, block_size: usize, at: usize) -> bool {
        match self {
            Self::UnquantizedPrefix { tokens } => at * block_size < tokens,
            Self::Full | Self::Latent | Self::SlidingWindow { .. } | Self::State => true,
        }
    }

    /// Of `blocks` cached leading blocks, those that a sequence shares. A state is copied into a slot of its own.
    pub fn shared_blocks(self, blocks: usize) -> usize {
        match self {
            Self::Full | Self::Latent | Self::SlidingWindow { .. } | Self::UnquantizedPrefix { .. } => blocks,
            Self::State => 0,
        }
    }

    /// Logical blocks that `tokens` positions reach, out-of-window ones included.
    pub fn blocks_for(self, block_size: usize, tokens: usize) -> usize {
        match self {
            Self::Full | Self::Latent | Self::SlidingWindow { .. } => tokens.div_ceil(block_size),
            Self::UnquantizedPrefix { tokens: prefix } => tokens.min(prefix).div_ceil(block_size),
            Self::State => 1,
        }
    }

    /// Positions that `blocks` logical blocks have room for. `usize::MAX`: any number.
    pub fn tokens_in(self, block_size: usize, blocks: usize) -> usize {
        match self {
            Self::UnquantizedPrefix { tokens } if blocks * block_size >= tokens => usize::MAX,
            Self::Full | Self::Latent | Self::SlidingWindow { .. } | Self::UnquantizedPrefix { .. } => {
                blocks * block_size
            }
            Self::State if blocks == 0 => 0,
            Self::State => usize::MAX,
        }
    }

    /// The longest sequence, in tokens, that a pool of `blocks` can run alone. Its last token is sampled and never
    /// computed.
    pub fn max_sequence_tokens(self, block_size: usize, blocks: usize) -> usize {
        match self {
            Self::SlidingWindow { tokens, .. }
                if (tokens - 1).div_ceil(block_size) + self.sink_blocks(block_size) < blocks =>
            {
                usize::MAX
            }
            Self::Full
            | Self::Latent
            | Self::SlidingWindow { .. }
            | Self::UnquantizedPrefix { .. }
            | Self::State => self.tokens_in(block_size, blocks).saturating_add(1),
        }
    }
}
