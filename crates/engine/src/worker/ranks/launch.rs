//! How further processes of a model are started, and watched.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use super::messages::{FollowerStart, VERSION};
use super::place::Place;
use super::rules::on_gpu;
use crate::cluster::{Cluster, RemoteCommand, start_remote};
use crate::error::StartError;
use crate::settings::Settings;

/// How long a process on another machine has to listen, at least.
const REMOTE_START: Duration = Duration::from_secs(30);

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

/// What all followers of a group are started with.
pub(super) struct GroupStart<'a> {
    pub(super) launch: &'a RankLaunch,
    /// The machines of the processes; `None` where all are on this one.
    pub(super) cluster: Option<&'a Cluster>,
    /// Of the files of the model.
    pub(super) fingerprint: [u8; 32],
    pub(super) settings: &'a Settings,
    /// Whether the end of a follower ends this process.
    pub(super) watched: &'a Arc<AtomicBool>,
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

    /// How long a rank may be silent.
    pub(super) fn watchdog(&self) -> Duration {
        self.watchdog
    }

    /// Starts a process. The calling thread must outlive it: it ends with the thread. `gpus`: the variable of those that it sees.
    fn spawn(&self, gpus: Option<(OsString, OsString)>) -> io::Result<(Child, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(self.watchdog))?;
        ours.set_write_timeout(Some(self.watchdog))?;
        let mut command = Command::new(&self.program);
        command
            .arg0("omnibus")
            .args(std::env::args_os().skip(1))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .envs(gpus)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(io::stderr()));
        Ok((command.spawn()?, ours))
    }
}

impl GroupStart<'_> {
    /// Starts the follower of a place, which begins to load.
    pub(super) fn follower(&self, place: Place) -> Result<UnixStream, StartError> {
        let number = place.number();
        let failed = |error| StartError::new(format!("rank {number} cannot be started: {error}"));
        let start = FollowerStart {
            version: VERSION.to_owned(),
            fingerprint: self.fingerprint,
            place,
            settings: self.settings.clone(),
            watchdog: self.launch.watchdog,
            variables: self.launch.variables.clone(),
        };
        let Some(cluster) = self.cluster else {
            let gpus = match on_gpu() {
                true => mlx::environment::gpus_from(place.rank(), mlx::device::gpu_count()),
                false => None,
            };
            let (child, mut socket) = self.launch.spawn(gpus).map_err(failed)?;
            watch(number, (child, None), Arc::clone(self.watched)).map_err(failed)?;
            (self.launch.send)(&mut socket, start).map_err(failed)?;
            return Ok(socket);
        };
        // Variables are of this machine.
        let mut socket = self.remote(cluster, number)?;
        (self.launch.send)(&mut socket, FollowerStart { variables: Vec::new(), ..start }).map_err(failed)?;
        Ok(socket)
    }

    /// Connects to a process on another machine, which is started first unless it runs.
    fn remote(&self, cluster: &Cluster, number: usize) -> Result<UnixStream, StartError> {
        let failed = |why: String| StartError::new(format!("rank {number} cannot be started: {why}"));
        let host = cluster.host(number).ok_or_else(|| failed("there is no host for it".to_owned()))?;
        let limit = self.launch.watchdog.max(REMOTE_START);
        let remote = start_remote(cluster, host, VERSION, limit).map_err(failed)?;
        if let Some(RemoteCommand { child, input }) = remote.command {
            let watched = Arc::clone(self.watched);
            watch(number, (child, Some(input)), watched).map_err(|error| failed(error.to_string()))?;
        }
        let socket = remote.socket;
        let limits = socket
            .set_read_timeout(Some(self.launch.watchdog))
            .and_then(|()| socket.set_write_timeout(Some(self.launch.watchdog)));
        limits.map_err(|error| failed(error.to_string()))?;
        Ok(socket)
    }
}

/// Ends this process when a follower ends, while the group is watched.
fn watch(
    number: usize,
    (mut child, input): (Child, Option<ChildStdin>),
    watched: Arc<AtomicBool>,
) -> io::Result<()> {
    let watch = move || {
        // Open until the child has ended.
        let _input = input;
        let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        if watched.load(Ordering::Relaxed) {
            end_group(&format!("rank {number} has ended ({status})"));
        }
    };
    std::thread::Builder::new().name(format!("omnibus-rank-{number}")).spawn(watch).map(|_| ())
}

/// Ends this process at once, and with it all followers. The supervisor starts the group again.
pub(super) fn end_group(why: &str) {
    tracing::error!(why, "the ranks end together");
    let _dying = kill_process(getpid(), Signal::KILL);
}
