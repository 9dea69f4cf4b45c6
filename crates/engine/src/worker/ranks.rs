//! Several processes that compute a model together: tensor parallelism, a part of every layer each, and pipeline parallelism,
//! some of the layers each.
//!
//! The engine's process is the first rank of the first stage. It has the loop, the scheduler and the sampler, starts the others,
//! and sends them the calls of the door to the device. The first rank of each stage starts the stage's other ranks. Ranks exchange
//! the parts of sums on the same sockets, in between; stages pass hidden states on with the calls.
//!
//! Invariant: all live and die together. A process that ends, fails or is silent ends the first one, which ends the others;
//! the supervisor starts all of them again. Nothing listens: each socket is one of a pair that a child inherits.

mod exchange;
mod follower;
mod group;
mod launch;
mod load_wait;
mod messages;
mod peer_exchange;
mod place;
mod ranked_device;
mod rules;
mod stage_chain;
mod stage_follower;
mod stage_groups;
mod staged_device;
mod start_check;

pub(crate) use follower::follow;
pub(super) use group::RankGroup;
pub(crate) use launch::RankLaunch;
pub(crate) use messages::FollowerStart;
pub(super) use place::Place;
pub(super) use ranked_device::RankedDevice;
pub(super) use rules::{
    check_step_bytes, settings_of_a_rank, weight_devices, without_encoders, without_head, without_masked_head,
};
pub(super) use stage_chain::{LaterStages, LoadingStages, agree};
pub(super) use staged_device::StagedDevice;
