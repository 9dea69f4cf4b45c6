//! The loop: take commands, keep steps in flight, read the oldest, tell.

mod commands;
mod failures;
mod orders;
mod report;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use omnibus_core::{
    self as core, CacheMiss, Outcome, Plan, PlanId, PrefixLookup, Scheduler, SequenceId, SequenceOutput,
    StopKind, Tick,
};

use super::Outlet;
use super::contained::contained;
use super::launch::Rows;
use super::prompt_file::PromptFile;
use super::runner::{Launched, Read, Runner};
use super::tier::{Leisure, Tier};
use crate::fault::{FaultPlan, Kind, panic_on_order};
use crate::message::{Command, Job, JobId, News, Note, Scored, StepSeen};
use crate::sampler::Pick;
use crate::{Failure, FinishReason, Stats};
use orders::{draw_on_order, order_faults, strike};

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
            for id in self.scheduler.newly_admitted(&plan) {
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
        let allocation = self.scheduler.apply(plan);
        for event in allocation.events {
            self.hear(event);
        }
        if let Some(tier) = &mut self.tier {
            tier.swap_out(&mut self.scheduler, &self.runner, &allocation.swaps)?;
        }
        if plan.scheduled.is_empty() {
            return Ok(());
        }
        self.tell_starts(plan, &allocation.lookups);
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
            runner.launch(rows, &allocation.copies, before, jobs, tokens_of)
        })?;
        if fault == Some(Kind::Draw) && !launched.is_late() {
            return Err(draw_on_order());
        }
        self.flight.push_back(Flight { fault, plan: plan.id, samples, tokens, launched, started });
        Ok(())
    }

    /// Says whose first step this is. The front hears it before anything is computed: should a step end the process,
    /// it is known who was in it.
    fn tell_starts(&mut self, plan: &Plan, lookups: &[PrefixLookup]) {
        let told = self.told.len();
        for work in &plan.scheduled {
            if work.positions.start == work.cached
                && let Some(job) = self.jobs.get(&work.sequence)
            {
                let lookup = lookups.iter().find(|lookup| lookup.sequence == work.sequence);
                let history_changed_at = match lookup.and_then(|lookup| lookup.miss) {
                    Some(CacheMiss::HistoryChanged { position }) => Some(position),
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
        let outputs =
            flight.samples.iter().zip(&picks).map(|(sequence, pick)| self.row(*sequence, pick)).collect();
        let mut scores: BTreeMap<SequenceId, Pick> = flight.samples.iter().copied().zip(picks).collect();
        for event in self.scheduler.commit(Outcome { plan: flight.plan, outputs, took: Some(took) }) {
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

    fn row(&self, sequence: SequenceId, pick: &Pick) -> SequenceOutput {
        let Some(token) = pick.token else { return SequenceOutput::Failed };
        let stops = self.jobs.get(&sequence).is_some_and(|job| job.stop_tokens.binary_search(&token).is_ok());
        SequenceOutput::Sampled { token, stop: stops.then_some(StopKind::Token) }
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

    fn now(&self) -> Tick {
        self.born.elapsed().as_micros() as Tick
    }
}

fn trace(plan: &Plan, cost: &core::CostModel) {
    if tracing::enabled!(tracing::Level::TRACE) {
        let load = core::StepLoad::of(plan);
        let expected_us = cost.predict(&load) as Tick;
        tracing::trace!(step = plan.id.0, ?load, expected_us, "step launched");
    }
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
        core::Failure::Sampling => "the model's numbers for this request were not finite",
        core::Failure::Step => "this request cannot be computed even on its own",
        core::Failure::Engine => "the engine gave this request up",
    };
    News::Failed(Failure::Engine { message: message.to_owned() })
}
