//! Attention to the last positions and, beyond them, to entries that stand for a few positions each: layers share the
//! entries, and the choice of those that a row reads (DeepSeek-V4.1).
//!
//! A group of positions has its entry in the slot of its last one, so that blocks of entries are freed, copied and found
//! like those of keys.

mod compressor;
mod forward;
mod index;
mod rounding;
mod spec;
mod tensors;

pub(super) use forward::CompressedBlock;
pub use spec::{Candidates, CompressedAttention, Compressor, EntryIndexer, EntryReads, OpenGroup};
