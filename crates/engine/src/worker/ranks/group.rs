//! The first rank's side of a group: starts the followers, watches them, and sends them calls.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use omnibus_model::{Shard, Source};
use rustix::process::{Signal, getpid, kill_process};

use super::exchange::SocketExchange;
use super::messages::{FollowerStart, FromFollower, ToFollower, VERSION};
use crate::error::StartError;
use crate::frames;
use crate::settings::Settings;
use crate::worker::device_call::DeviceCall;

/// Sends a follower its start.
type SendStart = Box<dyn Fn(&mut UnixStream, FollowerStart) -> io::Result<()> + Send>;

/// How followers are started.
pub(crate) struct RankLaunch {
    /// A program that becomes a follower when it is sent a start.
    program: PathBuf,
    /// How long a rank may be silent.
    watchdog: Duration,
    /// Added to this process's environment.
    variables: Vec<(OsString, OsString)>,
    send: SendStart,
}

impl RankLaunch {
    /// Followers are further processes of this program, with its arguments. `variables` are added to their environment: this
    /// process was started with them and may have taken them from its own. `send` sends one its start.
    pub(crate) fn of_this_program(
        watchdog: Duration,
        variables: Vec<(OsString, OsString)>,
        send: impl Fn(&mut UnixStream, FollowerStart) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        // The running program, even after another was installed at its path.
        let program = match cfg!(target_os = "linux") {
            true => PathBuf::from("/proc/self/exe"),
            false => std::env::current_exe()?,
        };
        Ok(Self { program, watchdog, variables, send: Box::new(send) })
    }

    /// Starts a follower. The calling thread must outlive it: it ends with the thread.
    fn spawn(&self) -> io::Result<(Child, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(self.watchdog))?;
        ours.set_write_timeout(Some(self.watchdog))?;
        let mut command = Command::new(&self.program);
        command
            .arg0("omnibus")
            .args(std::env::args_os().skip(1))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(io::stderr()));
        Ok((command.spawn()?, ours))
    }
}

/// The followers of the first rank.
pub(in crate::worker) struct RankGroup {
    sockets: RefCell<Vec<UnixStream>>,
    shard: Shard,
    watchdog: Duration,
    started: Instant,
    /// Whether the end of a follower ends this process: from when all have loaded until the group is dropped.
    watched: Arc<AtomicBool>,
}

impl RankGroup {
    /// Starts the followers of a model on several ranks, which begin to load; `None` for one rank.
    pub(in crate::worker) fn start(
        source: &Source,
        settings: &Settings,
        launch: Option<&RankLaunch>,
    ) -> Result<Option<Self>, StartError> {
        let ranks = settings.tensor_parallel_size;
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
        let mut sockets = Vec::new();
        for rank in 1..ranks {
            let version = VERSION.to_owned();
            let start = FollowerStart { version, fingerprint, rank, ranks, settings: settings.clone() };
            let failed = |error| StartError::new(format!("rank {rank} cannot be started: {error}"));
            let (child, mut socket) = launch.spawn().map_err(failed)?;
            watch(rank, child, Arc::clone(&watched)).map_err(failed)?;
            (launch.send)(&mut socket, start).map_err(failed)?;
            sockets.push(socket);
        }
        Self::over(sockets, launch.watchdog, watched).map(Some).map_err(StartError::new)
    }

    fn over(sockets: Vec<UnixStream>, watchdog: Duration, watched: Arc<AtomicBool>) -> io::Result<Self> {
        let ranks = sockets.len() + 1;
        let exchanged = sockets.iter().map(UnixStream::try_clone).collect::<io::Result<Vec<_>>>()?;
        let exchange = Rc::new(SocketExchange::of_first(exchanged));
        let shard = Shard::new(0, ranks, exchange).ok_or_else(|| io::Error::other("a first rank"))?;
        let sockets = RefCell::new(sockets);
        Ok(Self { sockets, shard, watchdog, started: Instant::now(), watched })
    }

    /// The first rank's part.
    pub(in crate::worker) fn shard(&self) -> Shard {
        self.shard.clone()
    }

    /// Waits until all followers have loaded their parts: once this rank has its own, as long as that took and the watchdog's
    /// time. Then they allocate these blocks of each layer group.
    pub(in crate::worker) fn allocate(&self, blocks: &[usize]) -> Result<(), StartError> {
        let limit = self.started.elapsed() + self.watchdog;
        for (index, socket) in self.sockets.borrow_mut().iter_mut().enumerate() {
            let failed =
                |why: String| StartError::new(format!("rank {} of the model cannot start: {why}", index + 1));
            let io_failed = |error: io::Error| match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    failed(format!("it has not loaded its part after {} s", self.started.elapsed().as_secs()))
                }
                _ => failed(error.to_string()),
            };
            socket.set_read_timeout(Some(limit)).map_err(io_failed)?;
            match frames::read(socket).map_err(io_failed)? {
                Some(FromFollower::Loaded) => {}
                Some(FromFollower::Refused(why)) => return Err(failed(why)),
                None => return Err(failed("its process has ended".to_owned())),
            }
            socket.set_read_timeout(Some(self.watchdog)).map_err(io_failed)?;
            frames::write(socket, &[ToFollower::Allocate(blocks.to_vec())]).map_err(io_failed)?;
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

/// Ends this process when a follower ends, while the group is watched.
fn watch(rank: usize, mut child: Child, watched: Arc<AtomicBool>) -> io::Result<()> {
    let watch = move || {
        let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        if watched.load(Ordering::Relaxed) {
            end_group(&format!("rank {rank} has ended ({status})"));
        }
    };
    std::thread::Builder::new().name(format!("omnibus-rank-{rank}")).spawn(watch).map(|_| ())
}

/// Ends this process at once, and with it all followers. The supervisor starts the group again.
pub(super) fn end_group(why: &str) {
    tracing::error!(why, "the ranks end together");
    let _dying = kill_process(getpid(), Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a group whose only follower says this, within the watchdog's time.
    fn allocated_in(
        watchdog: Duration,
        follower: impl FnOnce(UnixStream) + Send + 'static,
    ) -> Result<(), String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let group = RankGroup::over(vec![ours], watchdog, Arc::default()).unwrap();
        let thread = std::thread::spawn(move || follower(theirs));
        let allocated = group.allocate(&[3]).map_err(|error| error.to_string());
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
            assert!(matches!(allocate, Some(ToFollower::Allocate(blocks)) if blocks == [3]));
        });
        assert_eq!(loaded, Ok(()));
    }
}
