//! What the first rank and a follower say to each other, beside the parts of sums.

use std::ffi::OsString;
use std::time::Duration;

use omnibus_model::KernelChoice;
use serde::{Deserialize, Serialize};

use super::place::Place;
use crate::settings::Settings;
use crate::worker::device_call::DeviceCall;
use crate::worker::rows::Rows;

/// Of this program. Ranks of different programs compute no model together.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a follower is to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FollowerStart {
    /// [`VERSION`] of the first rank.
    pub(super) version: String,
    /// Of the first rank's files of the model.
    pub(super) fingerprint: [u8; 32],
    pub(super) place: Place,
    pub(super) settings: Settings,
    /// How long another rank may be silent.
    pub(crate) watchdog: Duration,
    /// Added to the environment of its own followers.
    pub(crate) variables: Vec<(OsString, OsString)>,
}

/// From the first rank to a follower.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum ToFollower {
    /// Allocate the KV cache with these blocks of each layer group: those of the stage for a rank, those of the network for the
    /// first rank of a stage. After it has loaded, once. `kernels`: what the first rank uses on a GPU.
    Allocate { blocks: Vec<usize>, kernels: KernelChoice },
    /// The memory of all ranks, in their order: how other processes open it.
    Memories(Vec<Vec<u8>>),
    /// Make a call of the device. What it replies is not sent.
    Call(Box<DeviceCall>),
}

/// From a follower to the first rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromFollower {
    /// How the first rank opens its memory for exchanges between GPUs.
    Memory(Vec<u8>),
    /// It has its part of the model.
    Loaded,
    /// The first rank of a stage has it, and its ranks.
    LoadedStage(StageCapacity),
    /// It cannot start; the process ends.
    Refused(String),
}

/// What fits the memory of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StageCapacity {
    /// Blocks of each layer group of the network; `None` of those that the stage has no layers of.
    pub(super) blocks: Vec<Option<usize>>,
    /// Longest sequence, in tokens.
    pub(super) max_context: usize,
}

/// From the last stage to the first: what a pass gave, in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromLastStage {
    /// The next logits.
    Logits(Rows),
    /// The next hidden states.
    Hidden(Rows),
    /// That was all of the pass of this step.
    End(u64),
}
