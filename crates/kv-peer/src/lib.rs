//! KV blocks of other replicas: what a block is called and how it is checked, and the client that fetches blocks from peers
//! and has them compute prompts.
//!
//! Invariant: no edge to a crate of ours: a block is a name and bytes. What a peer sends is not trusted: it has exactly the
//! size, the name and the checksum of a block that was requested, or the fetch fails. A fetch takes a bounded time.

mod block;
mod client;
mod records;
mod wire;

pub use block::{BlockHeader, BlockName, Fingerprint, HEADER_BYTES, Mismatch};
pub use client::prefill::RemotePrefill;
pub use client::status::{FailureCounts, PeerState};
pub use client::{BlockShape, PeerSettings, PeerStats, Peers, Reply, Request};
pub use records::{RecordError, Records};
pub use wire::{
    BlockRequest, FoundBlocks, LOOKUP_PATH, NAMES_MAX, PREFILL_PATH, PrefillAnswer, PrefillRequest,
    READ_PATH, WireError,
};
