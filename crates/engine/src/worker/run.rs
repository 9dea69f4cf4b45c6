//! The loop: take commands, keep steps in flight, read the oldest, tell.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use omnibus_core::{
    self as core, Lookup, Miss, Outcome, Plan, PlanId, Rejection, Row, Scheduler, SequenceId, StopKind, Tick,
};

use super::contained::{contained, said};
use super::launch::Rows;
use super::prompt_file::PromptFile;
use super::runner::{Launched, Read, Runner};
use super::tier::{Leisure, Tier};
use super::{NobodyListens, Outlet};
use crate::fault::{FaultPlan, Kind, Player, Scene, panic_on_order};
use crate::message::{Command, Job, JobId, News, Note, Report, Scored, StepSeen};
use crate::sampler::Pick;
use crate::{Failure, FinishReason, SessionSeen, Stats};

/// Nobody is told to come back later than this.
const RETRY_MAX_S: u64 = 600;
/// How long an idle loop sleeps at most; deadlines of waiting requests are looked at then.
const NAP: Duration = Duration::from_millis(200);
/// How long it sleeps while blocks are read that somebody waits for.
const READ_NAP: Duration = Duration::from_millis(1);
/// Turns that may panic one after the other, with no good step between them.
const PANICS_MAX: u32 = 3;

/// The loop and everything it owns.
pub(super) struct Loop {
    runner: Runner,
    scheduler: Scheduler,
    tier: Option<Tier>,
    prompt_file: Option<PromptFile>,
    /// Whether blocks wait to be copied out once there is nothing else to do.
    chores: Chores,
    jobs: BTreeMap<SequenceId, Job>,
    sequences: BTreeMap<JobId, SequenceId>,
    flight: VecDeque<Flight>,
    inbox: Receiver<Command>,
    outlet: Outlet,
    /// What the next report will say of jobs.
    told: Vec<Note>,
    /// Steps that no report has told of.
    steps: Vec<StepSeen>,
    stats: Stats,
    faults: FaultPlan,
    /// Steps launched.
    launches: u64,
    /// Turns that panicked, since a step was good.
    panics: u32,
    born: Instant,
    /// When the last step was read.
    done: Option<Instant>,
}

struct Flight {
    /// What is to go wrong when it is read, in tests.
    fault: Option<Kind>,
    plan: PlanId,
    /// Sequences that are sampled, in order.
    samples: Vec<SequenceId>,
    tokens: usize,
    launched: Launched,
    started: Instant,
}

/// What is left to do for the tier while nobody waits for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chores {
    Done,
    Left,
}

enum Fate {
    GoesOn,
    Stops,
}

impl Loop {
    pub(super) fn new(
        runner: Runner,
        scheduler: Scheduler,
        tier: Option<Tier>,
        prompt_file: Option<PromptFile>,
        inbox: Receiver<Command>,
        outlet: Outlet,
        faults: FaultPlan,
    ) -> Self {
        let (jobs, sequences, flight, told, steps, stats) = Default::default();
        let (born, done) = (Instant::now(), None);
        let chores = Chores::Done;
        Self {
            runner,
            scheduler,
            tier,
            prompt_file,
            chores,
            jobs,
            sequences,
            flight,
            inbox,
            outlet,
            told,
            steps,
            stats,
            faults,
            launches: 0,
            panics: 0,
            born,
            done,
        }
    }

    /// Runs until told to stop, or until nobody is left to tell.
    pub(super) fn run(mut self) {
        let mut fate = self.publish();
        while let Fate::GoesOn = fate {
            fate = match catch_unwind(AssertUnwindSafe(|| self.turn())) {
                Ok(fate) => fate,
                Err(panic) => {
                    self.rebuild(panic);
                    self.publish()
                }
            };
        }
        self.flight.clear();
        if let Some(tier) = &mut self.tier
            && let Err(error) = tier.flush(&mut self.scheduler, &self.runner)
        {
            tracing::warn!(%error, "not everything that was computed could be kept on disk");
        }
    }

    /// One round: commands, launches, one result.
    fn turn(&mut self) -> Fate {
        if let Fate::Stops = self.take_commands() {
            return Fate::Stops;
        }
        if let Err(error) = self.work() {
            self.recover(&error);
        }
        self.publish()
    }

    fn work(&mut self) -> mlx::Result<()> {
        let now = self.now();
        if let Some(tier) = &mut self.tier {
            tier.take_arrived(&mut self.scheduler, &mut self.runner, now)?;
        }
        self.step()?;
        if let Some(tier) = &mut self.tier {
            let idle = self.flight.is_empty() && self.scheduler.is_idle();
            let leisure = if idle { Leisure::Idle } else { Leisure::Busy };
            let left = tier.keep(&mut self.scheduler, &self.runner, leisure)?;
            self.chores = if idle && left { Chores::Left } else { Chores::Done };
        }
        Ok(())
    }

    /// Keeps as many steps in flight as the kernels allow, and reads the oldest.
    fn step(&mut self) -> mlx::Result<()> {
        let started = Instant::now();
        while self.flight.len() < self.runner.depth()
            && !self.flight.back().is_some_and(|f| f.launched.is_late())
        {
            let plan = self.next_plan()?;
            if plan.is_empty() {
                break;
            }
            self.launch(&plan)?;
        }
        let launched = Instant::now();
        let read = self.read_oldest();
        let (launching, waiting) = (launched - started, launched.elapsed());
        let dispatching = self.runner.take_dispatching();
        self.stats.host_seconds_total += launching.saturating_sub(dispatching).as_secs_f64();
        self.stats.dispatch_seconds_total += dispatching.as_secs_f64();
        self.stats.wait_seconds_total += waiting.as_secs_f64();
        read
    }

    /// Plans, and puts back what is kept elsewhere of those that begin, until there is nothing more to put back.
    fn next_plan(&mut self) -> mlx::Result<Plan> {
        loop {
            let now = self.now();
            let plan = self.scheduler.plan(now);
            let Some(tier) = &mut self.tier else { return Ok(plan) };
            for id in self.scheduler.entering(&plan) {
                tier.bring_back(&mut self.scheduler, &mut self.runner, id, now)?;
                if !self.scheduler.is_current(&plan) {
                    break;
                }
            }
            if self.scheduler.is_current(&plan) {
                return Ok(plan);
            }
        }
    }

    fn launch(&mut self, plan: &Plan) -> mlx::Result<()> {
        let begun = self.scheduler.begin(plan);
        for event in begun.events {
            self.hear(event);
        }
        if let Some(tier) = &mut self.tier {
            tier.swap_out(&mut self.scheduler, &self.runner, &begun.swaps)?;
        }
        if plan.work.is_empty() {
            return Ok(());
        }
        self.tell_starts(plan, &begun.lookups);
        trace(plan, self.scheduler.cost());
        let started = Instant::now();
        let jobs = &self.jobs;
        let mut rows = Rows::of(plan, &self.scheduler, self.runner.groups(), |id| jobs.get(&id));
        let fault = if self.faults.is_empty() {
            None
        } else {
            order_faults(&self.faults, self.launches, &mut rows, plan, jobs)
        };
        self.launches += 1;
        strike(fault)?;
        let (samples, tokens) = (rows.samples.iter().map(|row| row.sequence).collect(), rows.tokens.len());
        let before = self.flight.back().map(|flight| &flight.launched);
        let scheduler = &self.scheduler;
        let tokens_of = |id| scheduler.tokens(id).to_vec();
        let runner = &mut self.runner;
        let launched = contained(|| {
            if fault == Some(Kind::LaunchPanic) {
                panic_on_order();
            }
            runner.launch(rows, &begun.copies, before, jobs, tokens_of)
        })?;
        if fault == Some(Kind::Draw) && !launched.is_late() {
            return Err(draw_on_order());
        }
        self.flight.push_back(Flight { fault, plan: plan.id, samples, tokens, launched, started });
        Ok(())
    }

    /// Says whose first step this is. The front hears it before anything is computed: should a step end the process,
    /// it is known who was in it.
    fn tell_starts(&mut self, plan: &Plan, lookups: &[Lookup]) {
        let told = self.told.len();
        for work in &plan.work {
            if work.positions.start == work.cached
                && let Some(job) = self.jobs.get(&work.sequence)
            {
                let lookup = lookups.iter().find(|lookup| lookup.sequence == work.sequence);
                let history_changed_at = match lookup.and_then(|lookup| lookup.miss) {
                    Some(Miss::HistoryChanged { position }) => Some(position),
                    _ => None,
                };
                let news = News::Started { cached_tokens: work.cached, history_changed_at };
                self.told.push(Note { job: job.id, news });
            }
        }
        if self.told.len() > told {
            // Whether anybody listens is for the end of the turn to see.
            let _later = self.report();
        }
    }

    /// Waits for the oldest step in flight, and tells what came of it. Then the next one's late rows,
    /// if it has any, can be drawn.
    fn read_oldest(&mut self) -> mlx::Result<()> {
        let Some(flight) = self.flight.pop_front() else { return Ok(()) };
        if flight.fault == Some(Kind::Read) {
            return Err(mlx::Error::new("an evaluation that fails on order"));
        }
        let Read { picks, prompts } = contained(|| flight.launched.read())?;
        let took = self.took(&flight);
        tracing::trace!(step = flight.plan.0, took_us = took, "step read");
        for (sequence, news) in prompts {
            if let Some(job) = self.jobs.get(&sequence) {
                self.told.push(Note { job: job.id, news });
            }
        }
        let rows =
            flight.samples.iter().zip(&picks).map(|(sequence, pick)| self.row(*sequence, pick)).collect();
        let mut scores: BTreeMap<SequenceId, Pick> = flight.samples.iter().copied().zip(picks).collect();
        for event in self.scheduler.commit(Outcome { plan: flight.plan, rows, took: Some(took) }) {
            match event {
                core::Event::Token { sequence, token } => {
                    let pick = scores.remove(&sequence);
                    self.hear_token(sequence, token, pick);
                }
                other => self.hear(other),
            }
        }
        self.observe(&flight);
        self.panics = 0;
        let (scheduler, runner, jobs) = (&self.scheduler, &mut self.runner, &self.jobs);
        if let Some(next) = self.flight.front_mut().filter(|next| next.launched.is_late()) {
            if next.fault == Some(Kind::Draw) {
                return Err(draw_on_order());
            }
            contained(|| runner.draw(&mut next.launched, jobs, |id| scheduler.tokens(id).to_vec()))?;
        }
        Ok(())
    }

    /// How long the step that was just read kept the device busy, in microseconds.
    fn took(&mut self, flight: &Flight) -> Tick {
        let done = Instant::now();
        let began = self.done.map_or(flight.started, |done| done.max(flight.started));
        self.done = Some(done);
        (done - began).as_micros() as Tick
    }

    fn row(&self, sequence: SequenceId, pick: &Pick) -> Row {
        let Some(token) = pick.token else { return Row::Failed };
        let stops = self.jobs.get(&sequence).is_some_and(|job| job.stop_tokens.binary_search(&token).is_ok());
        Row::Sampled { token, stop: stops.then_some(StopKind::Token) }
    }

    fn hear_token(&mut self, sequence: SequenceId, token: u32, pick: Option<Pick>) {
        let Some(job) = self.jobs.get_mut(&sequence) else { return };
        job.generated.push(token);
        let (logprob, top) = pick.map_or((None, Vec::new()), |pick| (pick.logprob, pick.top));
        self.told.push(Note { job: job.id, news: News::Token(Scored { token, logprob, top }) });
    }

    /// Passes a scheduler's event on.
    fn hear(&mut self, event: core::Event) {
        let (sequence, news) = match event {
            core::Event::Token { sequence, token } => return self.hear_token(sequence, token, None),
            core::Event::Finished { sequence, reason } => (sequence, finished(reason)),
            core::Event::Failed { sequence, failure } => (sequence, failed(failure)),
        };
        if let Some(job) = self.jobs.remove(&sequence) {
            self.sequences.remove(&job.id);
            self.stats.finished_total += 1;
            let news = match (&mut self.prompt_file, news) {
                (Some(file), News::Finished(reason)) => match file.finish(&self.scheduler, &self.runner) {
                    Ok(()) => News::Finished(reason),
                    Err(failure) => News::Failed(failure),
                },
                (_, news) => news,
            };
            self.told.push(Note { job: job.id, news });
        }
    }

    /// Sleeps while there is nothing to do, else takes what has come.
    fn take_commands(&mut self) -> Fate {
        let idle = self.scheduler.is_idle() && self.flight.is_empty();
        // What the disk's own thread has done since is told a little later, when it is done.
        let writing = self.tier.as_ref().is_some_and(Tier::is_writing);
        if self.chores == Chores::Left {
            // Nobody waits for anything, and there is something to do all the same.
        } else if idle && !writing {
            match self.inbox.recv() {
                Ok(command) => {
                    if let Fate::Stops = self.obey(command) {
                        return Fate::Stops;
                    }
                }
                Err(_) => return Fate::Stops,
            }
        } else if idle || self.flight.is_empty() && self.scheduler.plan(self.now()).is_empty() {
            match self.inbox.recv_timeout(self.nap()) {
                Ok(command) => {
                    if let Fate::Stops = self.obey(command) {
                        return Fate::Stops;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Fate::Stops,
            }
        }
        loop {
            match self.inbox.try_recv() {
                Ok(command) => {
                    if let Fate::Stops = self.obey(command) {
                        return Fate::Stops;
                    }
                }
                Err(TryRecvError::Empty) => return Fate::GoesOn,
                Err(TryRecvError::Disconnected) => return Fate::Stops,
            }
        }
    }

    fn obey(&mut self, command: Command) -> Fate {
        match command {
            Command::Submit(job) => self.submit(*job),
            Command::Cancel(job) => {
                let event = self.sequences.get(&job).and_then(|sequence| self.scheduler.cancel(*sequence));
                if let Some(event) = event {
                    self.hear(event);
                }
            }
            Command::LookAtSessions => self.look_at_sessions(),
            Command::DropSession(session) => {
                self.scheduler.drop_session(session);
            }
            Command::Stop => return Fate::Stops,
        }
        Fate::GoesOn
    }

    fn look_at_sessions(&mut self) {
        let now = self.now();
        let sessions = self.scheduler.sessions(now).into_iter().map(|session| SessionSeen {
            session: session.session,
            tokens: session.tokens,
            blocks: session.blocks,
            idle_s: now.saturating_sub(session.last_used) as f64 / 1e6,
        });
        self.stats.sessions = sessions.collect();
        self.stats.session_looks_total += 1;
    }

    fn submit(&mut self, job: Job) {
        let now = self.now();
        let deadline = job.timeout_s.map(|seconds| now.saturating_add((seconds * 1e6) as Tick));
        let request = core::Request {
            priority: job.priority,
            deadline,
            cache_salt: job.cache_salt,
            key: job.tenant,
            session: job.session,
            boundaries: job.boundaries.clone(),
            history: job.history.clone(),
            ..core::Request::new(self.prompt_of(&job), job.max_new_tokens.saturating_sub(job.generated.len()))
        };
        match self.scheduler.submit(now, request) {
            Ok(sequence) => {
                self.sequences.insert(job.id, sequence);
                self.jobs.insert(sequence, job);
                if let Some(tier) = &mut self.tier {
                    tier.fetch(&mut self.scheduler, sequence, now);
                }
                self.begin_prompt_file(sequence);
            }
            Err(rejection) => {
                let failure = match rejection {
                    Rejection::Empty => Failure::bad_request("prompt", rejection.to_string()),
                    Rejection::TooLong { .. } => Failure::TooLong { message: rejection.to_string() },
                    Rejection::QueueFull { .. } => {
                        Failure::Busy { retry_after_s: seconds(self.scheduler.retry_after()) }
                    }
                };
                self.told.push(Note { job: job.id, news: News::Failed(failure) });
            }
        }
    }

    /// The tokens that a job starts from.
    fn prompt_of(&self, job: &Job) -> Vec<u32> {
        let tokens = [job.prompt.as_slice(), &job.generated].concat();
        match &self.prompt_file {
            Some(file) => file.prompt(tokens),
            None => tokens,
        }
    }

    fn begin_prompt_file(&mut self, sequence: SequenceId) {
        let Some(file) = &mut self.prompt_file else { return };
        if let Err(error) = file.begin(&mut self.scheduler, &mut self.runner, sequence) {
            self.recover(&error);
        }
    }

    /// After a step failed as a whole: nothing in memory can be trusted, so everything starts over
    /// from its tokens, in smaller steps.
    fn recover(&mut self, error: &mlx::Error) {
        tracing::warn!(%error, "a step failed; its sequences start over");
        self.flight.clear();
        if let Some(tier) = &mut self.tier {
            tier.abandon();
        }
        for event in self.scheduler.fail_steps() {
            self.hear(event);
        }
        self.stats.failed_steps_total += 1;
        if let Err(error) = self.runner.reset() {
            tracing::error!(%error, "the memory for keys and values cannot be made anew");
        }
    }

    /// Ends a turn with a report, which is also the sign of life.
    fn publish(&mut self) -> Fate {
        match self.report() {
            Ok(()) => Fate::GoesOn,
            Err(NobodyListens) => Fate::Stops,
        }
    }

    /// After a panic of the loop itself: the books may be wrong, so they are opened anew, and every job goes on from
    /// its tokens. Time limits begin again. A loop that panics whatever it is given ends, and says so by that.
    fn rebuild(&mut self, panic: Box<dyn Any + Send>) {
        tracing::error!(panic = said(panic.as_ref()), "the engine's loop panicked; everything starts over");
        self.panics += 1;
        if self.panics > PANICS_MAX {
            resume_unwind(panic);
        }
        self.flight.clear();
        if let Some(tier) = &mut self.tier {
            tier.abandon();
            tier.disown();
        }
        self.scheduler = Scheduler::new(self.scheduler.settings().clone());
        self.stats.failed_steps_total += 1;
        if let Err(error) = self.runner.reset() {
            tracing::error!(%error, "the memory for keys and values cannot be made anew");
        }
        self.sequences.clear();
        let jobs = std::mem::take(&mut self.jobs);
        jobs.into_values().for_each(|job| self.submit(job));
    }

    /// Sends what is to be told, and the numbers.
    fn report(&mut self) -> Result<(), NobodyListens> {
        let books = self.scheduler.stats();
        let stats = &mut self.stats;
        stats.process = std::process::id();
        (stats.queued, stats.running) = (books.queued, books.running);
        stats.kv_blocks_used = books.groups.iter().map(|group| group.used).sum();
        stats.kv_blocks_cached = books.groups.iter().map(|group| group.cached).sum();
        stats.kv_blocks_total = books.groups.iter().map(|group| group.total).sum();
        stats.prefix_misses = books.misses;
        stats.partial_copies_total = books.partial_copies_total;
        stats.checkpoints_total = books.checkpoints_total;
        stats.sessions_kept = books.sessions;
        stats.groups = books.groups;
        stats.preemptions_total = books.preemptions_total;
        stats.swap_preemptions_total = books.swap_preemptions_total;
        stats.cached_tokens_total = books.cached_tokens_total;
        stats.computed_tokens_total = books.computed_tokens_total;
        stats.generated_tokens_total = books.sampled_tokens_total;
        stats.cost_model.clone_from(self.scheduler.cost());
        stats.retry_after_s = seconds(self.scheduler.retry_after());
        stats.handovers_total = books.handovers_total;
        stats.disk = self.tier.as_ref().map(Tier::disk_stats).unwrap_or_default();
        stats.swap = self.tier.as_ref().map(Tier::swap_stats).unwrap_or_default();
        stats.active_memory_bytes = mlx::memory::active_memory() as u64;
        stats.peak_memory_bytes = mlx::memory::peak_memory() as u64;
        stats.cache_memory_bytes = mlx::memory::cache_memory() as u64;
        let (notes, steps) = (std::mem::take(&mut self.told), std::mem::take(&mut self.steps));
        // Only the report after a look carries what was seen: it may be long, and a report goes out at every step.
        let sessions = std::mem::take(&mut stats.sessions);
        (self.outlet)(Report { notes, stats: Stats { sessions, ..stats.clone() }, steps })
    }

    fn observe(&mut self, flight: &Flight) {
        self.stats.steps_total += 1;
        let seconds = flight.started.elapsed().as_secs_f64();
        self.steps.push(StepSeen { seconds, tokens: flight.tokens });
    }

    /// How long to sleep when there is nothing to compute.
    fn nap(&self) -> Duration {
        let change = self.scheduler.next_change().unwrap_or(Tick::MAX);
        let longest = if self.tier.as_ref().is_some_and(Tier::is_reading) { READ_NAP } else { NAP };
        longest.min(Duration::from_micros(change.saturating_sub(self.now()).max(1)))
    }

    fn now(&self) -> Tick {
        self.born.elapsed().as_micros() as Tick
    }
}

fn trace(plan: &Plan, cost: &core::CostModel) {
    if tracing::enabled!(tracing::Level::TRACE) {
        let load = core::Load::of(plan);
        let expected_us = cost.predict(&load) as Tick;
        tracing::trace!(step = plan.id.0, ?load, expected_us, "step launched");
    }
}

/// Microseconds as whole seconds that may be waited for.
fn seconds(ticks: Tick) -> u64 {
    ticks.div_ceil(1_000_000).clamp(1, RETRY_MAX_S)
}

/// Finds what is to go wrong with a step, and with its rows.
fn order_faults(
    faults: &FaultPlan,
    step: u64,
    rows: &mut Rows,
    plan: &Plan,
    jobs: &BTreeMap<SequenceId, Job>,
) -> Option<Kind> {
    let scene = Scene { step, tokens: rows.tokens.len() };
    let player = |sequence: &SequenceId| {
        jobs.get(sequence).map(|job| Player { prompt: &job.prompt, answered: job.generated.len() })
    };
    for row in &mut rows.samples {
        row.fault = player(&row.sequence).and_then(|player| faults.of_row(scene, player));
    }
    faults.of_step(scene, plan.work.iter().filter_map(|work| player(&work.sequence)))
}

/// Does what can be done before a step is built.
fn strike(fault: Option<Kind>) -> mlx::Result<()> {
    match fault {
        Some(Kind::Launch) => Err(mlx::Error::new("a launch that fails on order")),
        Some(Kind::Turn) => panic_on_order(),
        Some(Kind::Abort) => std::process::abort(),
        Some(Kind::Hang) => loop {
            std::thread::park();
        },
        Some(
            Kind::LaunchPanic
            | Kind::Draw
            | Kind::Read
            | Kind::NotANumber
            | Kind::Sampler
            | Kind::DiskFull
            | Kind::DiskReader,
        )
        | None => Ok(()),
    }
}

fn draw_on_order() -> mlx::Error {
    mlx::Error::new("a sampling that fails on order")
}

fn finished(reason: core::FinishReason) -> News {
    match reason {
        core::FinishReason::Stop(_) => News::Finished(FinishReason::Stop),
        core::FinishReason::Length => News::Finished(FinishReason::Length),
        core::FinishReason::Cancelled => News::Finished(FinishReason::Cancelled),
        // The front knows the limit and puts it in.
        core::FinishReason::Deadline => News::Failed(Failure::Timeout { after_s: 0.0 }),
    }
}

fn failed(failure: core::Failure) -> News {
    let message = match failure {
        core::Failure::Row => "the model's numbers for this request were not finite",
        core::Failure::Step => "this request cannot be computed even on its own",
        core::Failure::Engine => "the engine gave this request up",
    };
    News::Failed(Failure::Engine { message: message.to_owned() })
}
