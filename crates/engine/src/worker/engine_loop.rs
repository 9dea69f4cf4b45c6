//! The loop: take commands, keep steps in flight, read the oldest, report.

mod commands;
mod faults;
mod recovery;
mod report;

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use omnibus_core::{
    self as core, CacheMiss, Outcome, Plan, PlanId, PrefixLookup, Scheduler, SequenceId, SequenceOutput,
    StopKind, Tick,
};

use super::catch_panic::catch_panic;
use super::kv_offload::{Idleness, KvOffload};
use super::prompt_file::PromptFile;
use super::runner::{Launched, Read, Runner};
use super::step_input::Rows;
use crate::fault::{FaultPlan, Kind, injected_panic};
use crate::message::{Command, Job, JobId, JobReport, JobUpdate, ReportSender, StepStats, TokenLogprobs};
use crate::sampler::SampledToken;
use crate::{Failure, FinishReason, Stats};
use faults::{inject_before_launch, inject_faults, injected_sample_error};

/// The loop and everything it owns.
pub(super) struct EngineLoop {
    runner: Runner,
    scheduler: Scheduler,
    offload: Option<KvOffload>,
    prompt_file: Option<PromptFile>,
    /// Whether blocks wait to be copied out once there is nothing else to do.
    pending_offload: PendingOffload,
    jobs: BTreeMap<SequenceId, Job>,
    sequences: BTreeMap<JobId, SequenceId>,
    in_flight: VecDeque<InFlightStep>,
    inbox: Receiver<Command>,
    report_tx: ReportSender,
    /// What the next report will say of jobs.
    reports: Vec<JobReport>,
    /// Steps that no report has told of.
    steps: Vec<StepStats>,
    stats: Stats,
    faults: FaultPlan,
    /// Steps launched.
    launches: u64,
    /// MessageBoundaries that panicked, since a step was good.
    panics: u32,
    started_at: Instant,
    /// When the last step was read.
    done: Option<Instant>,
}

struct InFlightStep {
    /// What is to go wrong when it is read, in tests.
    fault: Option<Kind>,
    plan: PlanId,
    /// Sequences that are sampled, in order.
    samples: Vec<SequenceId>,
    tokens: usize,
    launched: Launched,
    started: Instant,
}

/// What is left to do for the offload while nobody waits for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingOffload {
    No,
    Yes,
}

impl EngineLoop {
    pub(super) fn new(
        runner: Runner,
        scheduler: Scheduler,
        offload: Option<KvOffload>,
        prompt_file: Option<PromptFile>,
        inbox: Receiver<Command>,
        report_tx: ReportSender,
        faults: FaultPlan,
    ) -> Self {
        let (jobs, sequences, in_flight, reports, steps, stats) = Default::default();
        let (started_at, done) = (Instant::now(), None);
        let pending_offload = PendingOffload::No;
        Self {
            runner,
            scheduler,
            offload,
            prompt_file,
            pending_offload,
            jobs,
            sequences,
            in_flight,
            inbox,
            report_tx,
            reports,
            steps,
            stats,
            faults,
            launches: 0,
            panics: 0,
            started_at,
            done,
        }
    }

    /// Runs until told to stop, or until nobody is left to tell.
    pub(super) fn run(mut self) {
        let mut flow = self.publish();
        while flow.is_continue() {
            flow = match catch_unwind(AssertUnwindSafe(|| self.iterate())) {
                Ok(flow) => flow,
                Err(panic) => {
                    self.rebuild(panic);
                    self.publish()
                }
            };
        }
        self.in_flight.clear();
        if let Some(offload) = &mut self.offload
            && let Err(error) = offload.flush(&mut self.scheduler, &self.runner)
        {
            tracing::warn!(%error, "not everything that was computed could be kept on disk");
        }
    }

    /// One round: commands, launches, one result.
    fn iterate(&mut self) -> ControlFlow<()> {
        self.take_commands()?;
        if let Err(error) = self.advance() {
            self.recover(&error);
        }
        self.publish()
    }

    fn advance(&mut self) -> mlx::Result<()> {
        let now = self.now();
        if let Some(offload) = &mut self.offload {
            offload.finish_reads(&mut self.scheduler, &mut self.runner, now)?;
        }
        self.step()?;
        if let Some(offload) = &mut self.offload {
            let idle = self.in_flight.is_empty() && self.scheduler.is_idle();
            let idleness = if idle { Idleness::Idle } else { Idleness::Busy };
            let left = offload.offload(&mut self.scheduler, &self.runner, idleness)?;
            self.pending_offload = if idle && left { PendingOffload::Yes } else { PendingOffload::No };
        }
        Ok(())
    }

    /// Keeps as many steps in flight as the kernels allow, and reads the oldest.
    fn step(&mut self) -> mlx::Result<()> {
        let started = Instant::now();
        while self.in_flight.len() < self.runner.depth()
            && !self.in_flight.back().is_some_and(|f| f.launched.is_deferred())
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
            let Some(offload) = &mut self.offload else { return Ok(plan) };
            for id in self.scheduler.newly_admitted(&plan) {
                offload.restore(&mut self.scheduler, &mut self.runner, id, now)?;
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
            self.handle_event(event);
        }
        if let Some(offload) = &mut self.offload {
            offload.swap_out(&mut self.scheduler, &self.runner, &allocation.swaps)?;
        }
        if plan.scheduled.is_empty() {
            return Ok(());
        }
        self.report_starts(plan, &allocation.lookups);
        trace(plan, self.scheduler.cost());
        let started = Instant::now();
        let jobs = &self.jobs;
        let mut rows = Rows::of(plan, &self.scheduler, self.runner.groups(), |id| jobs.get(&id));
        let fault = if self.faults.is_empty() {
            None
        } else {
            inject_faults(&self.faults, self.launches, &mut rows, plan, jobs)
        };
        self.launches += 1;
        inject_before_launch(fault)?;
        let (samples, tokens) = (rows.samples.iter().map(|row| row.sequence).collect(), rows.tokens.len());
        let before = self.in_flight.back().map(|in_flight| &in_flight.launched);
        let scheduler = &self.scheduler;
        let tokens_of = |id| scheduler.tokens(id).to_vec();
        let runner = &mut self.runner;
        let launched = catch_panic(|| {
            if fault == Some(Kind::LaunchPanic) {
                injected_panic();
            }
            runner.launch(rows, &allocation.copies, before, jobs, tokens_of)
        })?;
        if fault == Some(Kind::Draw) && !launched.is_deferred() {
            return Err(injected_sample_error());
        }
        self.in_flight.push_back(InFlightStep { fault, plan: plan.id, samples, tokens, launched, started });
        Ok(())
    }

    /// Reports the sequences whose first step this is, before anything is computed: if the step crashes the process, the
    /// supervisor knows which jobs were in it.
    fn report_starts(&mut self, plan: &Plan, lookups: &[PrefixLookup]) {
        let before = self.reports.len();
        for work in &plan.scheduled {
            if work.positions.start == work.cached
                && let Some(job) = self.jobs.get(&work.sequence)
            {
                let lookup = lookups.iter().find(|lookup| lookup.sequence == work.sequence);
                let history_changed_at = match lookup.and_then(|lookup| lookup.miss) {
                    Some(CacheMiss::HistoryChanged { position }) => Some(position),
                    _ => None,
                };
                let update = JobUpdate::Started { cached_tokens: work.cached, history_changed_at };
                self.reports.push(JobReport { job: job.id, update });
            }
        }
        if self.reports.len() > before {
            // A disconnect is noticed at the end of the iteration.
            let _later = self.report();
        }
    }

    /// Waits for the oldest step in flight and reports its tokens. Then the next step's deferred sampling, if any, can be
    /// launched.
    fn read_oldest(&mut self) -> mlx::Result<()> {
        let Some(in_flight) = self.in_flight.pop_front() else { return Ok(()) };
        if in_flight.fault == Some(Kind::Read) {
            return Err(mlx::Error::new("an injected evaluation failure"));
        }
        let Read { sampled, prompts } = catch_panic(|| in_flight.launched.read())?;
        let took = self.took(&in_flight);
        tracing::trace!(step = in_flight.plan.0, took_us = took, "step read");
        for (sequence, update) in prompts {
            if let Some(job) = self.jobs.get(&sequence) {
                self.reports.push(JobReport { job: job.id, update });
            }
        }
        let outputs = in_flight
            .samples
            .iter()
            .zip(&sampled)
            .map(|(sequence, sampled)| self.row(*sequence, sampled))
            .collect();
        let mut scores: BTreeMap<SequenceId, SampledToken> =
            in_flight.samples.iter().copied().zip(sampled).collect();
        for event in self.scheduler.commit(Outcome { plan: in_flight.plan, outputs, took: Some(took) }) {
            match event {
                core::Event::Token { sequence, token } => {
                    let sampled = scores.remove(&sequence);
                    self.handle_token(sequence, token, sampled);
                }
                other => self.handle_event(other),
            }
        }
        self.observe(&in_flight);
        self.panics = 0;
        let (scheduler, runner, jobs) = (&self.scheduler, &mut self.runner, &self.jobs);
        if let Some(next) = self.in_flight.front_mut().filter(|next| next.launched.is_deferred()) {
            if next.fault == Some(Kind::Draw) {
                return Err(injected_sample_error());
            }
            catch_panic(|| runner.draw(&mut next.launched, jobs, |id| scheduler.tokens(id).to_vec()))?;
        }
        Ok(())
    }

    /// How long the step that was just read kept the device busy, in microseconds.
    fn took(&mut self, in_flight: &InFlightStep) -> Tick {
        let done = Instant::now();
        let began = self.done.map_or(in_flight.started, |done| done.max(in_flight.started));
        self.done = Some(done);
        (done - began).as_micros() as Tick
    }

    fn row(&self, sequence: SequenceId, sampled: &SampledToken) -> SequenceOutput {
        let Some(token) = sampled.token else { return SequenceOutput::Failed };
        let stops = self.jobs.get(&sequence).is_some_and(|job| job.stop_tokens.binary_search(&token).is_ok());
        SequenceOutput::token(token, stops.then_some(StopKind::Token))
    }

    fn handle_token(&mut self, sequence: SequenceId, token: u32, sampled: Option<SampledToken>) {
        let Some(job) = self.jobs.get_mut(&sequence) else { return };
        job.generated.push(token);
        let (logprob, top) = sampled.map_or((None, Vec::new()), |sampled| (sampled.logprob, sampled.top));
        let update = JobUpdate::Token(TokenLogprobs { token, logprob, top });
        self.reports.push(JobReport { job: job.id, update });
    }

    /// Reports a scheduler's event.
    fn handle_event(&mut self, event: core::Event) {
        let (sequence, update) = match event {
            core::Event::Token { sequence, token } => return self.handle_token(sequence, token, None),
            core::Event::Finished { sequence, reason } => (sequence, finished(reason)),
            core::Event::Failed { sequence, failure } => (sequence, failed(failure)),
        };
        if let Some(job) = self.jobs.remove(&sequence) {
            self.sequences.remove(&job.id);
            self.stats.finished_total += 1;
            let update = match (&mut self.prompt_file, update) {
                (Some(file), JobUpdate::Finished(reason)) => match file.finish(&self.scheduler, &self.runner)
                {
                    Ok(()) => JobUpdate::Finished(reason),
                    Err(failure) => JobUpdate::Failed(failure),
                },
                (_, update) => update,
            };
            self.reports.push(JobReport { job: job.id, update });
        }
    }

    fn now(&self) -> Tick {
        self.started_at.elapsed().as_micros() as Tick
    }
}

fn trace(plan: &Plan, cost: &core::CostModel) {
    if tracing::enabled!(tracing::Level::TRACE) {
        let load = core::StepLoad::of(plan);
        let expected_us = cost.predict(&load) as Tick;
        tracing::trace!(step = plan.id.0, ?load, expected_us, "step launched");
    }
}

fn finished(reason: core::FinishReason) -> JobUpdate {
    match reason {
        core::FinishReason::Stop(_) => JobUpdate::Finished(FinishReason::Stop),
        core::FinishReason::Length => JobUpdate::Finished(FinishReason::Length),
        core::FinishReason::Cancelled => JobUpdate::Finished(FinishReason::Cancelled),
        // The front fills in the limit.
        core::FinishReason::Deadline => JobUpdate::Failed(Failure::Timeout { after_s: 0.0 }),
    }
}

fn failed(failure: core::Failure) -> JobUpdate {
    let message = match failure {
        core::Failure::Sampling => "the model's numbers for this request were not finite",
        core::Failure::Step => "this request cannot be computed even on its own",
        core::Failure::Engine => "the engine gave this request up",
    };
    JobUpdate::Failed(Failure::Engine { message: message.to_owned() })
}
