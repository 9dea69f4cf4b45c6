//! Convolved keys and values in the place of attention: the gate `sigmoid(query · key)` on the value.

mod forward;
mod spec;

pub(super) use forward::ConvGateBlock;
pub use spec::ConvGate;
