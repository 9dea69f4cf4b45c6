//! Keeps an engine's process running: starts it, tells it what to do, passes on what it says, and when it dies or
//! hangs starts another that goes on where it was.
//!
//! One thread does it, and narrates as well. It is also the parent that the process dies with.
//!
//! Invariant: whatever becomes of the process, every job ends with an event, and this thread waits for nobody longer
//! than the watchdog's limit. A job is not held for a model that cannot be loaded.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::gauges::Gauges;
use super::ledger::{Cancelled, Ledger};
use super::loads::Loads;
use super::narrator::Stage;
use crate::message::{Command, JobId, News, Note, Report};
use crate::process::wire::{self, FromEngine, Start, ToEngine};
use crate::worker::Ready;
use crate::{FinishReason, StartError};

/// How the process of an engine is started and watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// A program that calls [`crate::run_engine`].
    pub program: PathBuf,
    /// What it is given to do so.
    pub arguments: Vec<OsString>,
    /// Added to this process's environment.
    pub variables: Vec<(OsString, OsString)>,
    /// A process that has work and says nothing for so long is ended. Loading a model does not count.
    pub watchdog: Duration,
}

/// Until the first restart after a calm.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// However often processes die.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A process that has lived so many times the last pause has calmed down.
const CALM_PAUSES: u32 = 10;
/// How long a stop waits for the process, which may be in a long step, before it ends it.
const GOODBYE: Duration = Duration::from_secs(10);

/// What the keeper hears.
pub(super) enum Heard {
    /// From the front.
    Command(Command),
    /// From the process of that number.
    Said(u64, FromEngine),
    /// It will say nothing more.
    HungUp(u64),
}

/// What the keeper passes on to, and shows.
pub(super) struct Audience {
    pub(super) stage: Stage,
    pub(super) gauges: Arc<Gauges>,
}

/// An engine in a process of its own.
pub(super) struct Kept {
    pub(super) commands: Sender<Heard>,
    pub(super) ready: Ready,
    pub(super) thread: JoinHandle<()>,
}

/// Starts the process and waits until its model is in memory.
pub(super) fn start(isolation: Isolation, start: Start, audience: Audience) -> Result<Kept, StartError> {
    let (commands, inbox) = channel();
    let (tell, told) = channel();
    let keeper = Keeper {
        isolation,
        start,
        tell: commands.clone(),
        inbox,
        audience,
        ledger: Ledger::default(),
        life: None,
        number: 0,
        pause: PAUSE_MIN,
        loads: Loads::default(),
        restart_at: None,
    };
    let thread = std::thread::Builder::new()
        .name("omnibus-keeper".to_owned())
        .spawn(move || keeper.run(&tell))
        .map_err(|error| StartError::new(format!("cannot start a thread: {error}")))?;
    match told.recv() {
        Ok(Ok(ready)) => Ok(Kept { commands, ready, thread }),
        Ok(Err(error)) => {
            let _it_said_all = thread.join();
            Err(error)
        }
        Err(_) => Err(StartError::new("the engine's keeper ended while it loaded the model")),
    }
}

struct Keeper {
    isolation: Isolation,
    start: Start,
    /// For the threads that listen to processes.
    tell: Sender<Heard>,
    inbox: Receiver<Heard>,
    audience: Audience,
    ledger: Ledger,
    life: Option<Life>,
    /// Of the last process.
    number: u64,
    /// Before the restart after the next death.
    pause: Duration,
    loads: Loads,
    restart_at: Option<Instant>,
}

/// One process.
struct Life {
    process: Child,
    socket: UnixStream,
    stage: LifeStage,
    /// When it last said something, or was first given something to do.
    heard: Instant,
    listener: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LifeStage {
    Loads,
    Runs { since: Instant },
}

enum Fate {
    GoesOn,
    Stops,
}

impl Keeper {
    /// Loads, says how that went, and runs until told to stop.
    fn run(mut self, tell: &Sender<Result<Ready, StartError>>) {
        match self.begin() {
            Ok(ready) => {
                // Another process must hold what this one holds, or requests that were taken would not fit.
                self.start.settings.max_model_len = Some(ready.max_model_len);
                let _nobody = tell.send(Ok(ready));
                while let Fate::GoesOn = self.turn() {}
            }
            Err(error) => {
                let _nobody = tell.send(Err(error));
            }
        }
        self.stop();
        self.audience.gauges.end();
        self.audience.stage.end();
    }

    /// Starts the first process. Its failure is the engine's.
    fn begin(&mut self) -> Result<Ready, StartError> {
        self.spawn().map_err(StartError::new)?;
        loop {
            match self.inbox.recv() {
                Ok(Heard::Said(_, FromEngine::Ready(ready))) => {
                    self.now_runs();
                    return Ok(ready);
                }
                Ok(Heard::Said(_, FromEngine::Refused(why))) => return Err(StartError::new(why)),
                Ok(Heard::Said(_, FromEngine::Report(_)) | Heard::Command(_)) => {}
                Ok(Heard::HungUp(_)) | Err(_) => {
                    let how = self.end_life();
                    return Err(StartError::new(format!(
                        "the engine's process ended while it loaded the model ({how})"
                    )));
                }
            }
        }
    }

    fn turn(&mut self) -> Fate {
        let heard = match self.alarm() {
            None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => self.inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match heard {
            Ok(Heard::Command(Command::Stop)) => return Fate::Stops,
            Ok(Heard::Command(command)) => self.obey(command),
            Ok(Heard::Said(number, said)) if self.is_current(number) => self.hear(said),
            Ok(Heard::HungUp(number)) if self.is_current(number) => self.hung_up(),
            // Of a process that was given up before.
            Ok(Heard::Said(..) | Heard::HungUp(_)) => {}
            Err(RecvTimeoutError::Timeout) => self.ring(),
            Err(RecvTimeoutError::Disconnected) => return Fate::Stops,
        }
        self.hand_out();
        Fate::GoesOn
    }

    fn is_current(&self, number: u64) -> bool {
        self.life.is_some() && self.number == number
    }

    /// When something is to be done though nothing is heard.
    fn alarm(&self) -> Option<Instant> {
        let watchdog =
            self.life.as_ref().filter(|life| life.stage != LifeStage::Loads && self.ledger.is_out());
        let hang = watchdog.map(|life| life.heard + self.isolation.watchdog);
        [hang, self.restart_at, self.calm_at()].into_iter().flatten().min()
    }

    /// When deaths are forgotten, if nobody dies until then.
    fn calm_at(&self) -> Option<Instant> {
        let troubled = self.pause > PAUSE_MIN && !self.ledger.is_trying();
        let life = self.life.as_ref().filter(|_| troubled)?;
        match life.stage {
            LifeStage::Loads => None,
            LifeStage::Runs { since } => Some(since + self.pause * CALM_PAUSES),
        }
    }

    fn ring(&mut self) {
        let now = Instant::now();
        if self.calm_at().is_some_and(|at| at <= now) {
            self.pause = PAUSE_MIN;
            self.ledger.calm();
        }
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            if let Err(error) = self.spawn() {
                self.load_failed(&format!("its process cannot be started: {error}"));
            }
        }
        let hangs =
            |life: &Life| life.stage != LifeStage::Loads && life.heard + self.isolation.watchdog <= now;
        if self.ledger.is_out() && self.life.as_ref().is_some_and(hangs) {
            tracing::error!(after_s = self.isolation.watchdog.as_secs_f64(), "the engine's process hangs");
            self.died();
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(job) => match self.audience.gauges.refusal() {
                Some(failure) => self.tell(vec![Note { job: job.id, news: News::Failed(failure) }]),
                None => self.ledger.enter(*job, Instant::now()),
            },
            Command::Cancel(job) => self.cancel(job),
            command @ (Command::LookAtSessions | Command::DropSession(_)) => {
                self.send(&[ToEngine::Command(command)]);
            }
            Command::Stop => {}
        }
    }

    fn cancel(&mut self, job: JobId) {
        match self.ledger.cancel(job) {
            Cancelled::Here => {
                self.tell(vec![Note { job, news: News::Finished(FinishReason::Cancelled) }]);
            }
            Cancelled::Forward => self.send(&[ToEngine::Command(Command::Cancel(job))]),
            Cancelled::Unknown => {}
        }
    }

    fn hear(&mut self, said: FromEngine) {
        match said {
            FromEngine::Ready(_) => {
                tracing::info!("the engine's process has been started again");
                self.now_runs();
            }
            FromEngine::Refused(why) => {
                self.end_life();
                self.load_failed(&why);
            }
            FromEngine::Report(report) => {
                let Report { notes, stats, steps } = *report;
                if let Some(life) = &mut self.life {
                    life.heard = Instant::now();
                }
                self.audience.gauges.hear(stats, &steps);
                let notes = self.ledger.hear(notes);
                self.tell(notes);
            }
        }
    }

    fn now_runs(&mut self) {
        let now = Instant::now();
        if let Some(life) = &mut self.life {
            (life.stage, life.heard) = (LifeStage::Runs { since: now }, now);
        }
        self.loads.succeeded();
        self.audience.gauges.run();
    }

    /// Tells the clients, and ends what is over with that.
    fn tell(&mut self, notes: Vec<Note>) {
        for job in self.audience.stage.hear(notes) {
            self.cancel(job);
        }
    }

    /// Hands jobs to the process, if one runs.
    fn hand_out(&mut self) {
        let Some(life) = self.life.as_mut().filter(|life| life.stage != LifeStage::Loads) else { return };
        if !self.ledger.is_out() {
            life.heard = Instant::now();
        }
        let jobs = self.ledger.hand_out(Instant::now());
        if !jobs.is_empty() {
            let messages = jobs.into_iter().map(|job| ToEngine::Command(Command::Submit(Box::new(job))));
            self.send(&messages.collect::<Vec<_>>());
        }
    }

    /// A process that does not listen is about to be found dead, or made so.
    fn send(&mut self, messages: &[ToEngine]) {
        let Some(life) = &mut self.life else { return };
        if let Err(error) = wire::write(&mut life.socket, messages) {
            tracing::warn!(%error, "the engine's process does not listen");
            // Its end is heard from its listener, like any other.
            let _dead_already = life.process.kill();
        }
    }

    fn hung_up(&mut self) {
        if self.life.as_ref().is_some_and(|life| life.stage == LifeStage::Loads) {
            let how = self.end_life();
            self.load_failed(&format!("its process ended while it loaded the model ({how})"));
        } else {
            self.died();
        }
    }

    /// After a process that ran has died, or when it has to.
    fn died(&mut self) {
        let how = self.end_life();
        tracing::error!(
            how,
            pause_s = self.pause.as_secs_f64(),
            "the engine's process has ended; starting another"
        );
        self.audience.gauges.restart();
        let notes = self.ledger.died();
        self.tell(notes);
        self.restart_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// After a process ended before it could compute. Nobody's request is to blame.
    fn load_failed(&mut self, why: &str) {
        let pause = self.loads.failed();
        let next = Instant::now() + pause;
        self.restart_at = Some(next);
        tracing::error!(why, pause_s = pause.as_secs_f64(), "the engine cannot be loaded; trying again");
        self.ledger.take_back();
        self.audience.gauges.load_failed(why, next, self.loads.hope());
        if let Some(failure) = self.audience.gauges.refusal() {
            let notes = self.ledger.give_up(&failure);
            self.tell(notes);
        }
    }

    fn spawn(&mut self) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        // Who does not take a message for so long hangs.
        ours.set_write_timeout(Some(self.isolation.watchdog))?;
        let mut command = std::process::Command::new(&self.isolation.program);
        command
            .arg0("omnibus")
            .args(&self.isolation.arguments)
            .envs(self.isolation.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Results are the front's to print.
            .stdout(Stdio::from(io::stderr()))
            // A terminal's Ctrl-C is for the front, which stops the process when everybody has been served.
            .process_group(0);
        let process = command.spawn()?;
        self.number += 1;
        let (number, tell) = (self.number, self.tell.clone());
        let from = BufReader::new(ours.try_clone()?);
        let listener = std::thread::Builder::new()
            .name("omnibus-listener".to_owned())
            .spawn(move || listen(number, from, &tell))?;
        self.life =
            Some(Life { process, socket: ours, stage: LifeStage::Loads, heard: Instant::now(), listener });
        self.send(&[ToEngine::Start(Box::new(self.start.clone()))]);
        Ok(())
    }

    /// Makes sure that the process has ended. Says how.
    fn end_life(&mut self) -> String {
        let Some(mut life) = self.life.take() else { return "it was never started".to_owned() };
        let _dead_already = life.process.kill();
        let how = life.process.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        // It ends with its socket, which nobody holds any more.
        let _it_said_all = life.listener.join();
        how
    }

    /// Lets the process end by itself, for a while.
    fn stop(&mut self) {
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        self.send(&[ToEngine::Command(Command::Stop)]);
        let until = Instant::now() + GOODBYE;
        while let Some(life) = &mut self.life
            && matches!(life.process.try_wait(), Ok(None))
            && Instant::now() < until
        {
            std::thread::sleep(LOOK_EVERY);
        }
        self.end_life();
    }
}

/// Passes on what a process says, until its end.
fn listen(number: u64, mut from: BufReader<UnixStream>, tell: &Sender<Heard>) {
    loop {
        let heard = match wire::read(&mut from) {
            Ok(Some(said)) => Heard::Said(number, said),
            Ok(None) => Heard::HungUp(number),
            Err(error) => {
                tracing::error!(%error, "the engine's process says what nobody understands");
                Heard::HungUp(number)
            }
        };
        let over = matches!(heard, Heard::HungUp(_));
        if tell.send(heard).is_err() || over {
            return;
        }
    }
}
