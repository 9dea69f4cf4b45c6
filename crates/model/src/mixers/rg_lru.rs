//! Griffin's recurrent block: a convolution and a real-gated linear recurrent unit beside a gate.

mod forward;
mod spec;

pub(super) use forward::RgLruBlock;
pub use spec::RgLru;
