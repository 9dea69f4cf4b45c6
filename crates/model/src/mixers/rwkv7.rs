//! RWKV-7: time mixing, whose state is a matrix for each head, and channel mixing, an MLP that also sees the row before.

mod channel_mix;
mod forward;
mod time_mix;

pub use channel_mix::ChannelMix;
pub(super) use channel_mix::ChannelMixBlock;
pub(super) use forward::TimeMixBlock;
pub use time_mix::{TimeMix, WkvState};
