//! Multi-head latent attention: one compressed vector and one rotated key a position are cached for all heads.
//!
//! Source: arXiv 2405.04434 §2.1.

mod cache;
mod choice;
mod footprint;
mod forward;
mod indexer;
mod spec;
mod tensors;

pub(super) use forward::LatentBlock;
pub use indexer::Indexer;
pub use spec::{KeyReads, LatentAttention};
