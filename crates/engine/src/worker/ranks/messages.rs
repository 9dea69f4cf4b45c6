//! What the first rank and a follower say to each other, beside the parts of sums.

use serde::{Deserialize, Serialize};

use crate::settings::Settings;
use crate::worker::device_call::DeviceCall;

/// Of this program. Ranks of different programs compute no model together.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a follower is to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FollowerStart {
    /// [`VERSION`] of the first rank.
    pub(super) version: String,
    /// Of the first rank's files of the model.
    pub(super) fingerprint: [u8; 32],
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) settings: Settings,
}

/// From the first rank to a follower.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum ToFollower {
    /// Allocate the KV cache with these blocks of each layer group. After [`FromFollower::Loaded`], once.
    Allocate(Vec<usize>),
    /// Make a call of the device. What it replies is not sent.
    Call(Box<DeviceCall>),
}

/// From a follower to the first rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromFollower {
    /// It has its part of the model.
    Loaded,
    /// It cannot start; the process ends.
    Refused(String),
}
