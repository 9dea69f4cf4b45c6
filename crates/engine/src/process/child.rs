//! The main function of an engine's process.
//!
//! Invariant: it does not outlive the front, whatever it is doing: where the kernel can see to that it is asked to,
//! and a thread of its own waits for the socket's end.

use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use omnibus_model::Source;
use rustix::process::{Signal, getpid, kill_process};

use super::wire::{self, FromEngine, SourceName, Start, ToEngine};
use crate::message::Command;
use crate::worker::{self, NobodyListens};

/// How an engine's process came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop.
    AsTold,
    /// Something went wrong, as said.
    Badly(String),
}

/// Runs the engine whose front is at the other end of this process's standard input, until it is told to stop.
/// `embedded` are the files of the model inside the binary.
pub fn run_engine(embedded: &'static [(&'static str, &'static [u8])]) -> Ended {
    match converse(embedded) {
        Ok(ended) => ended,
        Err(error) => Ended::Badly(format!("the engine's front cannot be understood: {error}")),
    }
}

fn converse(embedded: &'static [(&'static str, &'static [u8])]) -> io::Result<Ended> {
    die_with_parent();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut from = BufReader::new(socket.try_clone()?);
    let start = match wire::read(&mut from)? {
        Some(ToEngine::Start(start)) => *start,
        Some(ToEngine::Command(_)) => return Err(io::Error::other("the first message is a command")),
        None => return Ok(Ended::AsTold),
    };
    let (commands, inbox) = channel();
    let stopping = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stopping);
    std::thread::Builder::new()
        .name("omnibus-orders".to_owned())
        .spawn(move || take_orders(from, &commands, &told))?;
    let Start { source, settings } = start;
    let source = match source {
        SourceName::Directory(path) => Source::Directory(path),
        SourceName::Embedded => Source::Embedded(embedded),
    };
    let to = Arc::new(Mutex::new(socket));
    let by_loop = Arc::clone(&to);
    // The loop itself writes: what it says before a step has left this process before the step begins. The front
    // reads whatever comes, so this waits for nobody.
    let outlet = Box::new(move |report| {
        write(&by_loop, FromEngine::Report(Box::new(report))).map_err(|_| NobodyListens)
    });
    let (ready, thread) = match worker::start(source, settings, inbox, outlet) {
        Ok(started) => started,
        Err(error) => {
            write(&to, FromEngine::Refused(error.to_string()))?;
            return Ok(Ended::AsTold);
        }
    };
    write(&to, FromEngine::Ready(ready))?;
    match thread.join() {
        Ok(()) if stopping.load(Ordering::Relaxed) => Ok(Ended::AsTold),
        Ok(()) => Ok(Ended::Badly("the engine's loop ended by itself".to_owned())),
        Err(_) => Ok(Ended::Badly("the engine's loop panicked".to_owned())),
    }
}

fn write(to: &Mutex<UnixStream>, message: FromEngine) -> io::Result<()> {
    wire::write(&mut *to.lock().unwrap_or_else(PoisonError::into_inner), &[message])
}

/// Passes commands on. An end of them that was not announced is the front's death, and then nobody needs this
/// process, nor waits for it to clean up.
fn take_orders(mut from: BufReader<UnixStream>, commands: &Sender<Command>, stopping: &AtomicBool) {
    while let Ok(Some(ToEngine::Command(command))) = wire::read(&mut from) {
        if command == Command::Stop {
            stopping.store(true, Ordering::Relaxed);
        }
        let _the_loop_is_over = commands.send(command);
    }
    if !stopping.load(Ordering::Relaxed) {
        let _dying = kill_process(getpid(), Signal::KILL);
    }
}

/// Asks the kernel to end this process with the thread that started it.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        tracing::debug!(%error, "only the socket's end will say that the front has died");
    }
}
