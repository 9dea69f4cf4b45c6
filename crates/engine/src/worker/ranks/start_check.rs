//! What every follower does first: it compares its program and its files with those of the first rank.

use std::io;
use std::os::unix::net::UnixStream;

use omnibus_model::Source;

use super::messages::{FollowerStart, FromFollower, VERSION};
use super::place::Place;
use crate::error::StartError;
use crate::frames;

pub(super) fn lost(place: Place, error: &io::Error) -> String {
    format!("rank {} lost the first rank: {error}", place.number())
}

/// Says that this process cannot start.
pub(super) fn refuse(socket: &mut UnixStream, error: &StartError) -> Result<(), String> {
    // The first rank may have found the same, and have ended.
    let _ended = frames::write(socket, &[FromFollower::Refused(error.to_string())]);
    Ok(())
}

/// The files of the model, if this program and they are the first rank's.
pub(super) fn check_start(source: &Source, start: &FollowerStart) -> Result<Source, StartError> {
    let version = &start.version;
    if version != VERSION {
        return Err(StartError::new(format!(
            "this is omnibus {VERSION}, and the first rank {version}; install one version"
        )));
    }
    let source = source.clone().with_adapter(start.settings.adapter.as_deref());
    if source.fingerprint().map_err(StartError::new)? != start.fingerprint {
        return Err(StartError::new(format!(
            "{} holds other weights or another config than the first rank's",
            source.path("config.json").display()
        )));
    }
    Ok(source)
}
