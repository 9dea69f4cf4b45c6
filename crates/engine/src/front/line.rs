//! The way to the loop, wherever that runs.

use std::sync::mpsc::Sender;

use super::keeper::Heard;
use crate::message::Command;
use crate::worker::NobodyListens;

/// The way to the loop, wherever that runs. Sending never waits.
#[derive(Clone)]
pub(super) enum Line {
    /// On a thread of this process.
    Thread(Sender<Command>),
    /// In a process of its own.
    Process(Sender<Heard>),
}

impl Line {
    pub(super) fn send(&self, command: Command) -> Result<(), NobodyListens> {
        match self {
            Self::Thread(loop_) => loop_.send(command).map_err(|_| NobodyListens),
            Self::Process(keeper) => keeper.send(Heard::Command(command)).map_err(|_| NobodyListens),
        }
    }
}
