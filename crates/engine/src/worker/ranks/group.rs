//! The first rank's side of a stage's ranks: starts the followers and sends them calls.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use omnibus_model::{Exchange, KernelChoice, Shard, Source};

use super::exchange::SocketExchange;
use super::launch::{GroupStart, RankLaunch};
use super::load_wait::LoadWait;
use super::messages::{FromFollower, ToFollower};
use super::peer_exchange::PeerExchange;
use super::place::Place;
use super::rules::on_gpu;
use crate::cluster::Cluster;
use crate::error::StartError;
use crate::frames;
use crate::settings::Settings;
use crate::worker::device_call::DeviceCall;

/// The followers of the first rank of a stage.
pub(in crate::worker) struct RankGroup {
    sockets: RefCell<Vec<UnixStream>>,
    shard: Shard,
    place: Place,
    load: LoadWait,
    /// Whether the end of a follower ends this process: from when all have loaded until the group is dropped.
    watched: Arc<AtomicBool>,
}

impl RankGroup {
    /// Starts the followers of a stage on several ranks, which begin to load; `None` for one rank.
    pub(in crate::worker) fn start(
        source: &Source,
        settings: &Settings,
        (launch, cluster): (Option<&RankLaunch>, Option<&Cluster>),
        place: Place,
    ) -> Result<Option<Self>, StartError> {
        let ranks = place.ranks();
        if ranks == 1 {
            return Ok(None);
        }
        let launch = launch.ok_or_else(|| {
            StartError::new(format!(
                "--tensor-parallel-size {ranks} needs engine processes; leave out --in-process"
            ))
        })?;
        let fingerprint = source.fingerprint().map_err(StartError::new)?;
        let watched = Arc::new(AtomicBool::new(false));
        let start = GroupStart { launch, cluster, fingerprint, settings, watched: &watched };
        let sockets = place.followers().map(|place| start.follower(place)).collect::<Result<_, _>>()?;
        let load = LoadWait::start(launch.watchdog());
        Self::over(sockets, place, load, watched).map(Some)
    }

    fn over(
        mut sockets: Vec<UnixStream>,
        place: Place,
        load: LoadWait,
        watched: Arc<AtomicBool>,
    ) -> Result<Self, StartError> {
        let ranks = sockets.len() + 1;
        let exchange: Rc<dyn Exchange> = match on_gpu() {
            true => Rc::new(PeerExchange::of_first(place, load, &mut sockets)?),
            false => {
                let exchanged = sockets.iter().map(UnixStream::try_clone).collect::<io::Result<Vec<_>>>();
                Rc::new(SocketExchange::of_first(exchanged.map_err(StartError::new)?))
            }
        };
        let shard = Shard::new(0, ranks, exchange).ok_or_else(|| StartError::new("a first rank"))?;
        Ok(Self { sockets: RefCell::new(sockets), shard, place, load, watched })
    }

    /// The first rank's part.
    pub(in crate::worker) fn shard(&self) -> Shard {
        self.shard.clone()
    }

    /// Waits until all followers have loaded their parts. Then they allocate these blocks of each layer group, and use these kernels.
    pub(in crate::worker) fn allocate(
        &self,
        blocks: &[usize],
        kernels: &KernelChoice,
    ) -> Result<(), StartError> {
        for (place, socket) in self.place.followers().zip(self.sockets.borrow_mut().iter_mut()) {
            let loaded = self.load.reply(place, socket)?;
            if loaded != FromFollower::Loaded {
                return Err(StartError::new(format!("rank {} loaded a stage", place.number())));
            }
            let allocate = ToFollower::Allocate { blocks: blocks.to_vec(), kernels: kernels.clone() };
            frames::write(socket, &[allocate]).map_err(StartError::new)?;
        }
        self.watched.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Sends a call to all followers.
    pub(super) fn send(&self, call: &DeviceCall) -> io::Result<()> {
        let message = [ToFollower::Call(Box::new(call.clone()))];
        self.sockets.borrow_mut().iter_mut().try_for_each(|socket| frames::write(socket, &message))
    }
}

impl Drop for RankGroup {
    /// The followers end with their sockets.
    fn drop(&mut self) {
        self.watched.store(false, Ordering::Relaxed);
        for socket in self.sockets.borrow().iter() {
            let _already_closed = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What becomes of a group whose only follower says this, within the watchdog's time.
    fn allocated_in(
        watchdog: Duration,
        follower: impl FnOnce(UnixStream) + Send + 'static,
    ) -> Result<(), String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let settings = Settings { tensor_parallel_size: 2, ..Settings::default() };
        let (place, load) = (Place::first(&settings), LoadWait::start(watchdog));
        let group = RankGroup::over(vec![ours], place, load, Arc::default()).unwrap();
        let thread = std::thread::spawn(move || follower(theirs));
        let allocated = group.allocate(&[3], &KernelChoice::default()).map_err(|error| error.to_string());
        thread.join().unwrap();
        allocated
    }

    /// With more time than any machine needs.
    fn allocated(follower: impl FnOnce(UnixStream) + Send + 'static) -> Result<(), String> {
        allocated_in(Duration::from_secs(60), follower)
    }

    #[test]
    fn a_rank_that_never_starts_is_an_error_that_says_so() {
        let ended = allocated(drop).unwrap_err();
        assert!(ended.contains("rank 1 of the model cannot start: its process has ended"), "{ended}");
        let (keep, kept) = std::sync::mpsc::channel();
        let silent = allocated_in(Duration::from_millis(20), move |socket| keep.send(socket).unwrap());
        let silent = silent.unwrap_err();
        assert!(silent.contains("it has not loaded its part"), "{silent}");
        drop(kept);
        let refused = FromFollower::Refused("no such file".to_owned());
        let refused = allocated(move |mut socket| frames::write(&mut socket, &[refused]).unwrap());
        assert!(refused.unwrap_err().ends_with("cannot start: no such file"));
        let loaded = allocated(|mut socket| {
            frames::write(&mut socket, &[FromFollower::Loaded]).unwrap();
            let allocate: Option<ToFollower> = frames::read(&mut socket).unwrap();
            assert!(matches!(allocate, Some(ToFollower::Allocate { blocks, .. }) if blocks == [3]));
        });
        assert_eq!(loaded, Ok(()));
    }
}
