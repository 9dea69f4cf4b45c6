//! A follower: loads its part of the model, and makes the calls that the first rank sends.
//!
//! Invariant: it decides nothing. A failure ends its process, and with it the group.

use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use omnibus_model::{Model, Shard, Source};

use super::exchange::SocketExchange;
use super::messages::{FollowerStart, FromFollower, ToFollower, VERSION};
use crate::error::StartError;
use crate::frames;
use crate::settings::Settings;
use crate::worker::capacity::{Capacity, MediaMemory};
use crate::worker::device_call::Device;
use crate::worker::model_runner::ModelRunner;
use crate::worker::{choose_device, kernels_of, load_model};

/// Follows the first rank until it closes the socket. An error is one line.
pub(crate) fn follow(source: Source, start: FollowerStart, mut socket: UnixStream) -> Result<(), String> {
    let rank = start.rank;
    let lost = |error: io::Error| format!("rank {rank} lost the first rank: {error}");
    let (mut runner, mut socket) = match Follower::load(&source, start, &socket) {
        Ok(follower) => {
            frames::write(&mut socket, &[FromFollower::Loaded]).map_err(lost)?;
            match frames::read(&mut socket).map_err(lost)? {
                Some(ToFollower::Allocate(blocks)) => (follower.allocate(blocks)?, socket),
                Some(ToFollower::Call(_)) => return Err("a call came before the blocks".to_owned()),
                None => return Ok(()),
            }
        }
        Err(error) => {
            // The first rank may have found the same, and have ended.
            let _ended = frames::write(&mut socket, &[FromFollower::Refused(error.to_string())]);
            return Ok(());
        }
    };
    while let Some(message) = frames::read(&mut socket).map_err(lost)? {
        let ToFollower::Call(call) = message else { return Err("blocks came twice".to_owned()) };
        runner.call(*call).map_err(|error| format!("rank {rank}: {error}"))?;
    }
    Ok(())
}

/// A follower with its part of the model.
struct Follower {
    model: Model,
    capacity: Capacity,
    settings: Settings,
}

impl Follower {
    fn load(source: &Source, start: FollowerStart, socket: &UnixStream) -> Result<Self, StartError> {
        let FollowerStart { version, fingerprint, rank, ranks, settings } = start;
        if version != VERSION {
            return Err(StartError::new(format!(
                "this is omnibus {VERSION}, and the first rank {version}; install one version"
            )));
        }
        let source = source.clone().with_adapter(settings.adapter.as_deref());
        if source.fingerprint().map_err(StartError::new)? != fingerprint {
            return Err(StartError::new(format!(
                "{} holds other weights or another config than the first rank's",
                source.path("config.json").display()
            )));
        }
        choose_device(settings.device)?;
        let exchange = SocketExchange::of_follower(rank, socket.try_clone().map_err(StartError::new)?);
        let shard = Shard::new(rank, ranks, Rc::new(exchange))
            .ok_or_else(|| StartError::new(format!("no rank {rank} of {ranks}")))?;
        let model = load_model(&source, kernels_of(&settings), &settings, (Some(shard), None))?;
        let settings = settings.on(mlx::device::default().map_err(StartError::new)?);
        let capacity = Capacity::of(&model, None, MediaMemory::default(), &settings)?;
        Ok(Self { model, capacity, settings })
    }

    fn allocate(self, blocks: Vec<usize>) -> Result<ModelRunner, String> {
        let Self { model, capacity, settings } = self;
        if blocks.len() != capacity.blocks.len() {
            return Err(format!("{} layer groups, not {}", capacity.blocks.len(), blocks.len()));
        }
        let capacity = Capacity { blocks, ..capacity };
        ModelRunner::new(model, &capacity, &settings).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[(&str, &[u8])] = &[("config.json", b"{}")];

    /// What a follower with other files, or of another version, replies.
    fn reply(change: impl FnOnce(&mut FollowerStart)) -> FromFollower {
        let source = Source::Embedded(FILES);
        let fingerprint = source.fingerprint().unwrap();
        let settings = Settings { tensor_parallel_size: 2, ..Settings::default() };
        let mut start =
            FollowerStart { version: VERSION.to_owned(), fingerprint, rank: 1, ranks: 2, settings };
        change(&mut start);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(follow(source, start, theirs), Ok(()));
        frames::read(&mut ours).unwrap().unwrap()
    }

    #[test]
    fn another_version_and_other_files_are_refused() {
        let says = |reply, what: &str| matches!(reply, FromFollower::Refused(why) if why.contains(what));
        assert!(says(reply(|start| start.version = "0".to_owned()), "and the first rank 0;"));
        assert!(says(reply(|start| start.fingerprint[0] ^= 1), "other weights or another config"));
        // Equal files are read.
        assert!(says(reply(|_| {}), "config.json"));
    }
}
