//! KV events: which blocks a server's prefix cache stores and evicts, published over ZeroMQ in the schema of vLLM, for routers that
//! send a prompt where its beginning is cached. Start at [`Publisher::start`].
//!
//! Invariant: no edge to a crate of ours, no scheduler and no arrays: a block is a hash and its tokens. Publishing never waits:
//! what finds no room in the queue is dropped and counted, and leaves a gap in the sequence numbers.

mod event;
mod message_pack;
mod publisher;
mod settings;

pub use event::{Adapter, Event, StoredBlock, batch};
pub use publisher::{Publisher, PublisherStats};
pub use settings::EventSettings;
