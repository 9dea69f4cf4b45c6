//! Programs that run beside each other, up to the first that fails or all of them.
//!
//! Invariant: what a job prints stays in one piece, unless it is [`Output::Live`].

mod cores;
mod watch;

use std::collections::VecDeque;
use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use cores::Bound;
pub use cores::Cores;
pub use watch::Limit;
use watch::Watch;

use crate::process;

/// How often running jobs are looked at.
const POLL: Duration = Duration::from_millis(20);

/// How long output may follow the end of a program: one that it started may still have the pipe.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// A program of the queue.
pub struct Job {
    pub name: String,
    pub command: Command,
    pub output: Output,
    pub lane: Lane,
    pub cores: Cores,
    pub limit: Limit,
    then: Option<Then>,
}

/// The jobs that a finished one makes possible.
type Then = Box<dyn FnOnce(&Finished) -> Result<Vec<Job>, String>>;

/// What becomes of a program's output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Collected, and printed when the program ends.
    Whole,
    /// Printed as it comes; standard output is collected for the caller, who reads it: cargo's messages.
    Live,
}

/// What a job cannot share with another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Free,
    /// The folder of builds, which cargo locks: a second cargo would wait, and take a place while it does.
    Cargo,
}

impl Job {
    pub fn new(name: impl Into<String>, command: Command) -> Self {
        let (output, lane, limit) = (Output::Whole, Lane::Free, Limit::None);
        Self { name: name.into(), command, output, lane, cores: Cores::All, limit, then: None }
    }

    /// A command of cargo that builds.
    pub fn cargo(name: impl Into<String>, command: Command) -> Self {
        Self { lane: Lane::Cargo, ..Self::new(name, command) }
    }

    pub fn live(self) -> Self {
        Self { output: Output::Live, ..self }
    }

    /// A program whose threads wait for each other more than they run beside each other.
    pub fn on_one_core(self) -> Self {
        Self { cores: Cores::One, ..self }
    }

    pub fn limited(self, limit: Duration) -> Self {
        Self { limit: Limit::Tests(limit), ..self }
    }

    /// With jobs that come first of all once it has succeeded.
    pub fn then(self, jobs: impl FnOnce(&Finished) -> Result<Vec<Job>, String> + 'static) -> Self {
        Self { then: Some(Box::new(jobs)), ..self }
    }
}

/// A job that succeeded.
pub struct Finished {
    pub name: String,
    pub time: Duration,
    /// Of the processors, if the system says it.
    pub processor_time: Option<Duration>,
    /// Its standard output, where the job is [`Output::Live`]; else all it printed.
    pub output: String,
}

/// Runs jobs, at most `width` at a time, in their order but for those whose lane is taken. The first failure stops those that
/// run.
pub fn run(jobs: Vec<Job>, width: usize) -> Result<Vec<Finished>, String> {
    drive(jobs, width, Err)
}

/// As [`run`], but a failure stops no other job: returns the failures as well.
pub fn run_all(jobs: Vec<Job>, width: usize) -> (Vec<Finished>, Vec<String>) {
    let mut failures = Vec::new();
    let finished = drive(jobs, width, |why| {
        failures.push(why);
        Ok(())
    });
    (finished.unwrap_or_default(), failures)
}

/// `failed` says of each failure whether it ends the others.
fn drive(
    jobs: Vec<Job>,
    width: usize,
    mut failed: impl FnMut(String) -> Result<(), String>,
) -> Result<Vec<Finished>, String> {
    let (mut queue, mut running, mut finished) = (VecDeque::from(jobs), Vec::new(), Vec::new());
    let cores = Bound::beside(width);
    let result = loop {
        let failure = match advance(&mut queue, &mut running, width, &cores) {
            Ok(None) if running.is_empty() && queue.is_empty() => break Ok(()),
            Ok(None) => {
                thread::sleep(POLL);
                continue;
            }
            Ok(Some((job, then))) => {
                let more = then.map_or_else(|| Ok(Vec::new()), |then| then(&job));
                finished.push(job);
                more.map(|more| more.into_iter().rev().for_each(|job| queue.push_front(job))).err()
            }
            Err(why) => Some(why),
        };
        if let Some(why) = failure.map_or(Ok(()), &mut failed).err() {
            break Err(why);
        }
    };
    for job in &mut running {
        job.stop();
    }
    result.map(|()| finished)
}

/// Starts what may start, and takes a job that ended.
fn advance(
    queue: &mut VecDeque<Job>,
    running: &mut Vec<Running>,
    width: usize,
    cores: &Bound,
) -> Result<Option<(Finished, Option<Then>)>, String> {
    while running.len() < width {
        let is_free =
            |job: &Job| job.lane == Lane::Free || running.iter().all(|other| other.lane != job.lane);
        let Some(job) = queue.iter().position(is_free).and_then(|at| queue.remove(at)) else { break };
        let taken: Vec<usize> = running.iter().filter_map(|other| other.core).collect();
        let core = cores.quietest(&taken).filter(|_| job.cores == Cores::One);
        running.push(Running::start(job, core)?);
    }
    for at in 0..running.len() {
        if let Some(end) = running[at].end() {
            return running.swap_remove(at).finish(end).map(Some);
        }
    }
    Ok(None)
}

struct Running {
    name: String,
    lane: Lane,
    /// What it is bound to.
    core: Option<usize>,
    output: Output,
    since: Instant,
    child: Child,
    /// When it was last looked at.
    processor_time: Option<Duration>,
    pieces: Receiver<Vec<u8>>,
    collected: Vec<u8>,
    watch: Watch,
    then: Option<Then>,
}

/// How a job ended.
enum End {
    Exited(ExitStatus),
    /// It was ended, for this reason.
    TooLong(String),
}

impl Running {
    fn start(job: Job, core: Option<usize>) -> Result<Self, String> {
        let Job { name, mut command, output, lane, limit, then, .. } = job;
        if let Some(core) = core {
            command = cores::bound(&command, core);
        }
        let cannot = |error: std::io::Error| format!("cannot start {name}: {error}");
        let (reader, writer) = std::io::pipe().map_err(cannot)?;
        if output == Output::Whole {
            command.stderr(writer.try_clone().map_err(cannot)?);
        } else {
            say(&format!("== {name}\n"));
        }
        let child = command.stdin(Stdio::null()).stdout(writer).spawn().map_err(cannot)?;
        // The command has copies of the writing end: as long as it exists, the reader does not see the end.
        drop(command);
        let (sender, pieces) = channel();
        thread::spawn(move || {
            let mut reader = reader;
            let mut piece = vec![0; 1 << 16];
            while let Ok(length @ 1..) = std::io::Read::read(&mut reader, &mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        let (since, watch) = (Instant::now(), Watch::new(limit, Instant::now()));
        let (processor_time, collected) = (None, Vec::new());
        Ok(Self { name, lane, core, output, since, child, processor_time, pieces, collected, watch, then })
    }

    /// How it ended, if it has.
    fn end(&mut self) -> Option<End> {
        while let Ok(piece) = self.pieces.try_recv() {
            self.take(piece);
        }
        // A process that has ended is listed until it is waited for.
        self.processor_time = process::processor_time(self.child.id()).or(self.processor_time);
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(End::Exited(status));
        }
        let why = self.watch.too_long(Instant::now())?;
        self.stop();
        Some(End::TooLong(why))
    }

    fn take(&mut self, piece: Vec<u8>) {
        self.watch.read(&piece, Instant::now());
        self.collected.extend(piece);
    }

    /// Collects the rest of the output and prints it.
    fn finish(mut self, end: End) -> Result<(Finished, Option<Then>), String> {
        let until = Instant::now() + LAST_OUTPUT;
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(piece) = self.pieces.recv_timeout(left()) {
            self.take(piece);
        }
        let (name, time) = (self.name, self.since.elapsed());
        let output = String::from_utf8_lossy(&self.collected).into_owned();
        let (shown, head) = match self.output {
            Output::Whole => (output.trim_end(), format!("== {name}\n")),
            Output::Live => ("", String::new()),
        };
        let line_end = if shown.is_empty() { "" } else { "\n" };
        let failure = match end {
            End::Exited(status) if status.success() => None,
            End::Exited(status) => Some(format!("{name} failed ({status})")),
            End::TooLong(why) => Some(format!("{name}: {why}")),
        };
        let passed = || match self.processor_time {
            Some(computed) => format!(
                "{name}: {:.1} s, {:.1} of the processors",
                time.as_secs_f64(),
                computed.as_secs_f64()
            ),
            None => format!("{name}: {:.1} s", time.as_secs_f64()),
        };
        let last = failure.clone().unwrap_or_else(passed);
        say(&format!("{head}{shown}{line_end}== {last}\n"));
        match failure {
            Some(why) => Err(why),
            None => Ok((Finished { name, time, processor_time: self.processor_time, output }, self.then)),
        }
    }

    /// Ends it with the servers that it started, which a killed test program leaves behind.
    fn stop(&mut self) {
        let started = process::descendants(self.child.id());
        // It may have ended meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
        process::kill(&started);
    }
}

/// Prints a text in one piece.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // Where nothing reads the output, the result still counts.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job::new(name, command)
    }

    #[test]
    fn both_outputs_are_collected_in_their_order() {
        let found = run(vec![shell("a", "echo 1; echo 2 >&2; echo 3")], 1).unwrap_or_default();
        assert_eq!(found.iter().map(|job| job.output.as_str()).collect::<Vec<_>>(), ["1\n2\n3\n"]);
    }

    #[test]
    fn the_first_failure_stops_the_others() {
        let since = Instant::now();
        let failed = run(vec![shell("long", "exec sleep 100"), shell("short", "exit 3")], 2).err();
        assert_eq!(failed.as_deref(), Some("short failed (exit status: 3)"));
        assert!(since.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_failure_may_leave_the_others_alone() {
        let broken = shell("b", "true").then(|_| Err("b leads nowhere".to_owned()));
        let never = shell("a", "exit 3").then(|_| Ok(vec![shell("never", "true")]));
        let (found, failures) = run_all(vec![never, broken, shell("c", "true")], 1);
        assert_eq!(found.iter().map(|job| job.name.as_str()).collect::<String>(), "bc");
        assert_eq!(failures, ["a failed (exit status: 3)", "b leads nowhere"]);
    }

    #[test]
    fn a_job_that_is_stopped_leaves_no_process_behind() {
        // A shell in a shell: `sleep` is a grandchild.
        let job = shell("long", "sh -c 'sleep 600 & echo $!; wait'; true");
        let Ok(mut running) = Running::start(job, None) else { panic!("no shell") };
        let Ok(piece) = running.pieces.recv() else { panic!("no output") };
        let sleep = String::from_utf8_lossy(&piece).trim().to_owned();
        running.stop();
        let mut ps = Command::new("ps");
        ps.args(["-o", "stat=", "-p", &sleep]);
        let mut runs =
            || ps.output().is_ok_and(|output| !matches!(output.stdout.trim_ascii_start(), [] | [b'Z', ..]));
        // It is killed, and ends a moment later.
        let until = Instant::now() + Duration::from_secs(60);
        while runs() {
            assert!(Instant::now() < until, "{sleep} runs");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn jobs_run_beside_each_other_but_not_in_one_lane() {
        // Each waits for a file of the other.
        let folder = std::env::temp_dir().join(format!("omnibus-jobs-{}", std::process::id()));
        assert!(std::fs::create_dir_all(&folder).is_ok());
        let wait = |own: &str, other: &str| {
            let mut job = shell(own, &format!("touch {own}; until [ -e {other} ]; do sleep 0.01; done"));
            job.command.current_dir(&folder);
            job
        };
        assert!(run(vec![wait("a", "b"), wait("b", "a")], 2).is_ok());
        let alone = "mkdir lane && sleep 0.05 && rmdir lane";
        let in_lane = |name: &str| {
            let mut job = shell(name, alone);
            job.command.current_dir(&folder);
            Job { lane: Lane::Cargo, ..job }
        };
        assert!(run(vec![in_lane("c"), in_lane("d")], 2).is_ok());
        assert!(std::fs::remove_dir_all(&folder).is_ok());
    }

    #[test]
    fn what_a_job_makes_possible_runs_next() {
        let first = shell("a", "true").then(|_| Ok(vec![shell("b", "true"), shell("c", "true")]));
        let found = run(vec![first, shell("d", "true")], 1).unwrap_or_default();
        assert_eq!(found.iter().map(|job| job.name.as_str()).collect::<String>(), "abcd");
    }
}
