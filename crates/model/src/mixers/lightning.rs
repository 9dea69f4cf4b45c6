//! Lightning attention: linear attention in which each head forgets at a rate of its own.

mod forward;
mod spec;

pub(super) use forward::LightningBlock;
pub use spec::Lightning;
