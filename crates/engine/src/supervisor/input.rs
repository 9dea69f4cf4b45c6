//! What a supervisor's thread receives.

use super::journaled_job::JournaledJob;
use crate::message::Command;
use crate::process::wire::FromEngine;

/// What a supervisor's thread receives.
pub(super) enum Input {
    /// A job: a new one, or one of a replica whose process has died.
    Job(Box<JournaledJob>),
    /// From the front.
    Command(Command),
    /// From the process of that number.
    Message(u64, FromEngine),
    /// That process has closed its socket.
    HungUp(u64),
}
