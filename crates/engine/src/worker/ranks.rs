//! Tensor parallelism: several processes that compute a model together, a part of every layer each.
//!
//! The engine's process is the first rank. It has the loop, the scheduler and the sampler, starts the followers, and sends them
//! the calls of the door to the device. Ranks exchange the parts of sums on the same sockets, in between.
//!
//! Invariant: a group lives and dies as a whole. A rank that ends, fails or is silent ends the first one, which ends the others;
//! the supervisor starts all of them again. Nothing listens: each socket is one of a pair that a child inherits.

mod exchange;
mod follower;
mod group;
mod messages;
mod ranked_device;
mod rules;

pub(crate) use follower::follow;
pub(super) use group::RankGroup;
pub(crate) use group::RankLaunch;
pub(crate) use messages::FollowerStart;
pub(super) use ranked_device::RankedDevice;
pub(super) use rules::{settings_of_a_rank, without_encoders, without_head};
