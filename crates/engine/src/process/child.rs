//! The main function of an engine process.
//!
//! Invariant: it does not outlive the front: where the kernel supports it, it is killed with its parent, and a thread of
//! its own waits for the socket's end. Then the loop ends after its step, or the process is killed after the grace period.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use omnibus_model::Source;
use rustix::process::{Signal, getpid, kill_process};

use super::GRACE;
use super::wire::{self, FromEngine, SourceName, Start, ToEngine};
use crate::error::Disconnected;
use crate::log_span::of_model;
use crate::message::Command;
use crate::worker::{self, Own, RankLaunch};

/// How an engine process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineExit {
    /// It was stopped.
    Stopped,
    /// It failed, for this reason.
    Failed(String),
}

/// What an engine process may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineRole {
    /// What the first message says.
    Any,
    /// A follower of a process on another machine, and nothing else.
    Follower,
}

/// Runs the engine until it is stopped. The front is at the other end of this process's standard input. `embedded`: the
/// files of the model inside the binary.
pub fn run_engine(embedded: &'static [(&'static str, &'static [u8])], role: EngineRole) -> EngineExit {
    match serve(embedded, role) {
        Ok(exit) => exit,
        Err(error) => EngineExit::Failed(format!("the front sent an invalid message: {error}")),
    }
}

fn serve(embedded: &'static [(&'static str, &'static [u8])], role: EngineRole) -> io::Result<EngineExit> {
    die_with_parent();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut from = BufReader::new(socket.try_clone()?);
    let start = match wire::read(&mut from)? {
        Some(ToEngine::Start(_)) if role == EngineRole::Follower => {
            return Err(io::Error::other("a follower was to be the first rank"));
        }
        Some(ToEngine::Start(start)) => *start,
        Some(ToEngine::Follow(source, start)) => {
            drop(from);
            let launch = launch_of(source.clone(), start.watchdog, start.variables.clone())?;
            return Ok(match worker::follow(files_of(source, embedded), *start, socket, &launch) {
                Ok(()) => EngineExit::Stopped,
                Err(why) => EngineExit::Failed(why),
            });
        }
        Some(ToEngine::Command(_)) => return Err(io::Error::other("the first message is a command")),
        None => return Ok(EngineExit::Stopped),
    };
    let (commands, inbox) = channel();
    let stopping = Arc::new(AtomicBool::new(false));
    let stopping_too = Arc::clone(&stopping);
    std::thread::Builder::new()
        .name("omnibus-commands".to_owned())
        .spawn(move || read_commands(from, commands, &stopping_too))?;
    let Start { source, settings, watchdog, label, variables } = start;
    let _lines_name_the_model = of_model(label.as_deref()).entered();
    let launch = launch_of(source.clone(), watchdog, variables)?;
    let source = files_of(source, embedded);
    let to = Arc::new(Mutex::new(socket));
    let by_load = Arc::clone(&to);
    // Nothing hangs on it: a front that is gone is noticed by its commands' end.
    let progress = move |progress| _ = write(&by_load, FromEngine::Loading(progress));
    let own = Own { settings, launch: Some(launch), progress: Some(Box::new(progress)), ..Own::default() };
    let by_loop = Arc::clone(&to);
    // The loop itself writes: a report sent before a step has left this process before the step begins. The front always
    // reads, so this does not block.
    let report_tx = Box::new(move |report| {
        write(&by_loop, FromEngine::Report(Box::new(report))).map_err(|_| Disconnected)
    });
    let (ready, thread) = match worker::start(source, own, inbox, report_tx) {
        Ok(started) => started,
        Err(error) => {
            write(&to, FromEngine::Refused(error.to_string()))?;
            return Ok(EngineExit::Stopped);
        }
    };
    write(&to, FromEngine::Ready(Box::new(ready)))?;
    let ended = thread.join();
    worker::release_memory();
    match ended {
        Ok(()) if stopping.load(Ordering::Relaxed) => Ok(EngineExit::Stopped),
        Ok(()) => Ok(EngineExit::Failed("the engine's loop ended by itself".to_owned())),
        Err(_) => Ok(EngineExit::Failed("the engine's loop panicked".to_owned())),
    }
}

/// How other ranks of a model are started.
fn launch_of(
    source: SourceName,
    watchdog: Duration,
    variables: Vec<(OsString, OsString)>,
) -> io::Result<RankLaunch> {
    // Other machines have another working directory.
    let source = match source {
        SourceName::Directory(path) => SourceName::Directory(std::path::absolute(path)?),
        SourceName::Embedded => SourceName::Embedded,
    };
    RankLaunch::of_this_program(watchdog, variables, move |socket, start| {
        wire::write(socket, &[ToEngine::Follow(source.clone(), Box::new(start))])
    })
}

fn files_of(source: SourceName, embedded: &'static [(&'static str, &'static [u8])]) -> Source {
    match source {
        SourceName::Directory(path) => Source::Directory(path),
        SourceName::Embedded => Source::Embedded(embedded),
    }
}

fn write(to: &Mutex<UnixStream>, message: FromEngine) -> io::Result<()> {
    wire::write(&mut *to.lock().unwrap_or_else(PoisonError::into_inner), &[message])
}

/// Passes commands on. A socket closed without a stop means that the front has died, or that it takes this process for one that
/// hangs: without commands the loop ends, and where it does not, the process is killed.
fn read_commands(mut from: BufReader<UnixStream>, commands: Sender<Command>, stopping: &AtomicBool) {
    let mut stopped = false;
    while let Ok(Some(ToEngine::Command(command))) = wire::read(&mut from) {
        if command == Command::Stop {
            stopped = true;
            stopping.store(true, Ordering::Relaxed);
        }
        let _loop_has_ended = commands.send(command);
    }
    if !stopped {
        stopping.store(true, Ordering::Relaxed);
        drop(commands);
        std::thread::sleep(GRACE);
        let _dying = kill_process(getpid(), Signal::KILL);
    }
}

/// Makes the kernel kill this process when the thread that started it ends.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        tracing::debug!(%error, "the front's death will be noticed by the socket's end only");
    }
}
