//! What followers say while they load, and how long it may take.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::messages::FromFollower;
use super::place::Place;
use crate::error::StartError;
use crate::frames;

/// How long followers may load.
#[derive(Clone, Copy)]
pub(super) struct LoadWait {
    started: Instant,
    watchdog: Duration,
}

impl LoadWait {
    /// From now on. `watchdog`: how long a rank may be silent.
    pub(super) fn start(watchdog: Duration) -> Self {
        Self { started: Instant::now(), watchdog }
    }

    /// What a follower replies when it has loaded its part: once this process has its own, after as long as that took and the
    /// watchdog's time at most. Fails if it refuses, or has ended.
    pub(super) fn reply(self, place: Place, socket: &mut UnixStream) -> Result<FromFollower, StartError> {
        let failed = |why: String| {
            StartError::new(format!("rank {} of the model cannot start: {why}", place.number()))
        };
        let io_failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                failed(format!("it has not loaded its part after {} s", self.started.elapsed().as_secs()))
            }
            _ => failed(error.to_string()),
        };
        socket.set_read_timeout(Some(self.started.elapsed() + self.watchdog)).map_err(io_failed)?;
        match frames::read(socket).map_err(io_failed)? {
            Some(FromFollower::Refused(why)) => Err(failed(why)),
            Some(loaded) => {
                socket.set_read_timeout(Some(self.watchdog)).map_err(io_failed)?;
                Ok(loaded)
            }
            None => Err(failed("its process has ended".to_owned())),
        }
    }
}
