//! A follower: loads its part of the model, and makes the calls that the first rank sends.
//!
//! Invariant: it decides nothing. A failure ends its process, and with it the group.

use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use omnibus_model::{Exchange, Model, Shard, Source};

use super::exchange::SocketExchange;
use super::launch::RankLaunch;
use super::messages::{FollowerStart, FromFollower, ToFollower};
use super::peer_exchange::PeerExchange;
use super::rules::on_gpu;
use super::stage_follower::follow_stage;
use super::start_check::{check_start, lost, refuse};
use crate::error::StartError;
use crate::frames;
use crate::settings::Settings;
use crate::worker::capacity::{Capacity, MediaMemory};
use crate::worker::device_call::Device;
use crate::worker::model_runner::ModelRunner;
use crate::worker::warm_up::compile_ahead;
use crate::worker::{choose_device, kernels_of, load_model};

/// Follows the first rank, of its stage or of all, until that closes the socket. `launch`: how the first rank of a stage starts the
/// others. An error is one line.
pub(crate) fn follow(
    source: Source,
    start: FollowerStart,
    socket: UnixStream,
    launch: &RankLaunch,
) -> Result<(), String> {
    match start.place.leads() {
        true => follow_stage(&source, start, socket, launch),
        false => follow_rank(&source, start, socket),
    }
}

fn follow_rank(source: &Source, start: FollowerStart, mut socket: UnixStream) -> Result<(), String> {
    let place = start.place;
    let lost = |error: io::Error| lost(place, &error);
    let (mut runner, mut socket) = match Follower::load(source, start, &socket) {
        Ok(follower) => {
            frames::write(&mut socket, &[FromFollower::Loaded]).map_err(lost)?;
            match frames::read(&mut socket).map_err(lost)? {
                Some(ToFollower::Allocate { blocks, kernels }) => {
                    follower.model.use_kernels(kernels);
                    (follower.allocate(blocks)?, socket)
                }
                Some(_) => return Err("something came before the blocks".to_owned()),
                None => return Ok(()),
            }
        }
        Err(error) => return refuse(&mut socket, &error),
    };
    while let Some(message) = frames::read(&mut socket).map_err(lost)? {
        let ToFollower::Call(call) = message else { return Err("blocks came twice".to_owned()) };
        runner.call(*call).map_err(|error| format!("rank {}: {error}", place.number()))?;
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
        let source = check_start(source, &start)?;
        let FollowerStart { place, settings, .. } = start;
        choose_device(settings.device)?;
        let (rank, ranks) = (place.rank(), place.ranks());
        let mut socket = socket.try_clone().map_err(StartError::new)?;
        let exchange: Rc<dyn Exchange> = match on_gpu() {
            true => Rc::new(PeerExchange::of_follower(place, &mut socket)?),
            false => Rc::new(SocketExchange::of_follower(rank, socket)),
        };
        let shard = Shard::new(rank, ranks, exchange)
            .ok_or_else(|| StartError::new(format!("no rank {rank} of {ranks}")))?;
        let part = place.part(Some(shard))?;
        let model = load_model(&source, kernels_of(&settings), &settings, (part, None))?;
        let settings = settings.on(mlx::device::default().map_err(StartError::new)?);
        let capacity = Capacity::of(&model, None, MediaMemory::default(), &settings)?;
        compile_ahead(&model, None, &capacity, &settings);
        Ok(Self { model, capacity, settings })
    }

    fn allocate(self, blocks: Vec<usize>) -> Result<ModelRunner, String> {
        let Self { model, capacity, settings } = self;
        if blocks.len() != capacity.blocks.len() {
            return Err(format!("{} layer groups, not {}", capacity.blocks.len(), blocks.len()));
        }
        ModelRunner::new(model, blocks, &capacity, &settings).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::worker::ranks::Place;
    use crate::worker::ranks::messages::VERSION;

    const FILES: &[(&str, &[u8])] = &[("config.json", b"{}")];

    /// What a follower with other files, or of another version, replies.
    fn reply(change: impl FnOnce(&mut FollowerStart)) -> FromFollower {
        let source = Source::Embedded(FILES);
        let fingerprint = source.fingerprint().unwrap();
        let settings = Settings { tensor_parallel_size: 2, ..Settings::default() };
        let place = Place::first(&settings).followers().next().unwrap();
        let (version, watchdog) = (VERSION.to_owned(), Duration::from_secs(60));
        let mut start =
            FollowerStart { version, fingerprint, place, settings, watchdog, variables: Vec::new() };
        change(&mut start);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let launch = RankLaunch::of_this_program(watchdog, Vec::new(), |_, _| Ok(())).unwrap();
        assert_eq!(follow(source, start, theirs, &launch), Ok(()));
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
