//! The KV cache in numbers: block ids, block tables, and the cache spec of a layer group. Start at [`KvCacheSpec`].
//!
//! The scheduler counts blocks, the model owns their arrays, kernels follow block tables. All three take block and
//! window arithmetic from here, so it is written once.
//!
//! Invariant: numbers only. No arrays, no requests, no policy; nothing here allocates a block or evicts one.

mod block;
mod kind;
mod spec;
mod table;

pub use block::BlockId;
pub use kind::{CacheKind, RequiredBlocks};
pub use spec::{FloatType, KvCacheSpec, KvFormat};
pub use table::BlockTable;
