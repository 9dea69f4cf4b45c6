//! The loop: take commands, keep steps in flight, read the oldest, report.

mod adapters;
mod block_queries;
mod commands;
mod drafts;
mod energy;
mod in_flight;
mod media;
mod media_queue;
mod recovery;
mod report;
mod results;
mod step_recorder;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use omnibus_core::{
    self as core, CacheMiss, Goal, Outcome, Plan, PrefixLookup, Scheduler, SequenceId, Tick, TokenSource,
};
use omnibus_model::SpanRuns;

use super::Loaded;
use super::capacity::PoolSize;
use super::catch_panic::catch_panic;
use super::device_call::StepResult;
use super::device_client::DeviceClient;
use super::drafts::Drafts;
use super::grammars::Grammars;
use super::kv_offload::{Idleness, KvOffload};
use super::memory::BufferCache;
use super::prompt_file::PromptFile;
use super::step_input::{RequestRows, RowDrafts, StepInput};
use crate::energy::EnergyUsage;
use crate::error::Failure;
use crate::event::FinishReason;
use crate::message::{
    Command, Job, JobReport, JobUpdate, QueryReply, ReportSender, StepStats, TokenLogprobs,
};
use crate::request::ProgressReports;
use crate::sampler::{LateStops, NewSequence, SamplingChanges, needs_history};
use crate::speculation::DraftUsage;
use drafts::may_draft;
pub(super) use energy::LoopEnergy;
use in_flight::{InFlightStep, SampledSequence, StepSampling};
use media_queue::{MediaQueue, SequenceMedia};
use recovery::failed;
use report::LoopStats;
use results::StepTokens;
use step_recorder::StepRecorder;

/// The loop and everything it owns.
pub(super) struct EngineLoop {
    device: DeviceClient,
    scheduler: Scheduler,
    offload: Option<KvOffload>,
    prompt_file: Option<PromptFile>,
    /// Of the KV cache, the largest first.
    smaller_pools: VecDeque<PoolSize>,
    /// `None` where sequences have no draft tokens.
    drafts: Option<Drafts>,
    /// `None` where no sensor counts it.
    energy: Option<LoopEnergy>,
    grammars: Grammars,
    buffer_cache: BufferCache,
    /// Whether blocks wait to be copied out while the loop is idle.
    pending_offload: PendingOffload,
    idle_since: Option<Instant>,
    jobs: BTreeMap<SequenceId, ActiveJob>,
    in_flight: VecDeque<InFlightStep>,
    /// Sequences that the runner knows.
    known: BTreeSet<SequenceId>,
    /// Changes of sampling state for the next step.
    changes: SamplingChanges,
    inbox: Receiver<Command>,
    report_tx: ReportSender,
    /// For the next report.
    reports: Vec<JobReport>,
    replies: Vec<QueryReply>,
    media: MediaQueue,
    /// Adapters that jobs may use.
    loaded_adapters: BTreeSet<u128>,
    /// Adapters to unload once no job uses them.
    retired_adapters: BTreeSet<u128>,
    stats: LoopStats,
    recorder: StepRecorder,
    /// Consecutive iterations that panicked, without a completed step in between.
    panics: u32,
    started_at: Instant,
    /// When the last step was read.
    last_read_at: Option<Instant>,
}

/// A job in the scheduler, which holds its tokens.
struct ActiveJob {
    /// Without its tokens and its media.
    job: Job,
    /// Tokens of its prompt, and of its answer as far as they were reported.
    reported: usize,
    /// Tokens of its prompt and its answer at most.
    max_tokens: usize,
    /// Positions of its prompt that attend to each other in both directions.
    spans: Vec<SpanRuns>,
    /// What became of its draft tokens.
    drafts: DraftUsage,
    /// What its steps used.
    energy: Option<EnergyUsage>,
}

/// Whether blocks wait to be copied out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingOffload {
    No,
    Yes,
    /// Perhaps, once the loop has been idle for [`OFFLOAD_PAUSE`].
    Paused,
}

/// What an iteration has copied out while the loop was idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copied {
    Nothing,
    Blocks,
}

/// How long the loop is idle before it copies blocks out.
const OFFLOAD_PAUSE: Duration = Duration::from_millis(100);

impl EngineLoop {
    pub(super) fn new(loaded: Loaded, inbox: Receiver<Command>, report_tx: ReportSender) -> Self {
        let Loaded {
            ready,
            device,
            scheduler,
            offload,
            prompt_file,
            smaller_pools,
            grammars,
            drafts,
            energy,
        } = loaded;
        Self {
            device,
            scheduler,
            offload,
            prompt_file,
            smaller_pools,
            drafts,
            energy,
            grammars,
            buffer_cache: BufferCache::default(),
            pending_offload: PendingOffload::No,
            idle_since: None,
            jobs: BTreeMap::new(),
            in_flight: VecDeque::new(),
            known: BTreeSet::new(),
            changes: SamplingChanges::default(),
            inbox,
            report_tx,
            reports: Vec::new(),
            replies: Vec::new(),
            media: MediaQueue::default(),
            loaded_adapters: ready.adapters.iter().filter_map(|adapter| adapter.loaded).collect(),
            retired_adapters: BTreeSet::new(),
            stats: LoopStats::default(),
            recorder: StepRecorder::default(),
            panics: 0,
            started_at: Instant::now(),
            last_read_at: None,
        }
    }

    /// Runs until stopped, or until the front is gone.
    pub(super) fn run(mut self) {
        let mut flow = self.publish();
        while flow.is_continue() {
            flow = match omnibus_text::catch_panic(|| self.iterate()) {
                Ok(flow) => flow,
                Err(panic) => {
                    self.rebuild(&panic);
                    self.publish()
                }
            };
        }
        self.in_flight.clear();
        if let Some(offload) = &mut self.offload
            && let Err(error) = offload.flush(&mut self.scheduler, &mut self.device)
        {
            tracing::warn!(%error, "some cached blocks could not be written to disk");
        }
    }

    /// One iteration: commands, launches, one result.
    fn iterate(&mut self) -> ControlFlow<()> {
        self.take_commands()?;
        self.submit_compiled();
        if let Err(error) = self.advance() {
            self.recover(&error);
        }
        self.unload_retired_adapters();
        // Clients get their tokens first: copies for the disk take milliseconds.
        self.publish()?;
        match self.copy_out() {
            Ok(Copied::Nothing) => ControlFlow::Continue(()),
            Ok(Copied::Blocks) => self.publish(),
            Err(error) => {
                self.recover(&error);
                self.publish()
            }
        }
    }

    fn advance(&mut self) -> mlx::Result<()> {
        self.buffer_cache.hold_count();
        let now = self.now();
        if let Some(offload) = &mut self.offload {
            offload.finish_reads(&mut self.scheduler, &mut self.device, now)?;
        }
        self.advance_encoding()?;
        self.step()
    }

    /// Copies blocks out for the disk: some every few steps, and all once the loop has been idle for a while, so that a request
    /// that follows at once waits for none.
    fn copy_out(&mut self) -> mlx::Result<Copied> {
        let Some(offload) = &mut self.offload else { return Ok(Copied::Nothing) };
        let before = self.pending_offload;
        let idle = self.in_flight.is_empty() && self.scheduler.is_idle();
        let since = idle.then(|| *self.idle_since.get_or_insert_with(Instant::now));
        self.idle_since = since;
        let is_paused = since.is_some_and(|since| since.elapsed() < OFFLOAD_PAUSE);
        let idleness = if idle && !is_paused { Idleness::Idle } else { Idleness::Busy };
        let left = offload.offload(&mut self.scheduler, &mut self.device, idleness)?;
        self.pending_offload = match idle {
            true if is_paused => PendingOffload::Paused,
            true if left => PendingOffload::Yes,
            _ => PendingOffload::No,
        };
        Ok(if before == PendingOffload::Yes { Copied::Blocks } else { Copied::Nothing })
    }

    /// Keeps as many steps in flight as the runner allows, and reads the oldest.
    fn step(&mut self) -> mlx::Result<()> {
        let started = Instant::now();
        while self.in_flight.len() < self.device.traits().depth
            && !self.in_flight.back().is_some_and(InFlightStep::is_deferred)
        {
            let planning = Instant::now();
            let plan = self.next_plan()?;
            self.stats.add_planning(planning.elapsed());
            if plan.is_empty() {
                break;
            }
            self.launch(&plan)?;
        }
        let dispatching = self.device.stats().dispatching;
        let read = self.read_oldest();
        self.stats.add_times(started.elapsed(), dispatching);
        read
    }

    /// Plans, and restores stored blocks of the sequences that begin, until there is nothing more to restore.
    fn next_plan(&mut self) -> mlx::Result<Plan> {
        loop {
            let now = self.now();
            let plan = self.scheduler.plan(now);
            let Some(offload) = &mut self.offload else { return Ok(plan) };
            for id in self.scheduler.newly_admitted(&plan) {
                offload.restore(&mut self.scheduler, &mut self.device, id, now)?;
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
        let planning = Instant::now();
        let allocation = self.scheduler.apply(plan);
        self.stats.add_planning(planning.elapsed());
        for event in allocation.events {
            self.handle_event(event);
        }
        if let Some(offload) = &mut self.offload {
            offload.swap_out(&mut self.scheduler, &mut self.device, &allocation.swaps)?;
        }
        if plan.scheduled.is_empty() {
            return Ok(());
        }
        self.report_starts(plan, &allocation.lookups);
        report::trace(plan, self.scheduler.cost());
        let drafting = self.compute_drafts(plan);
        let started = Instant::now();
        let (input, samples) = self.step_input(plan)?;
        let input = StepInput { copies: allocation.copies, ..input };
        self.media.encode_missing(plan, &mut self.scheduler, &mut self.device)?;
        let (deferred, masked) = (self.is_deferred(plan), self.is_masked(&samples));
        // A device that has nothing to do begins while the host builds the sampling.
        let idle = self.in_flight.is_empty() && self.device.traits().depth > 1;
        let drafts = self.counted_drafts(&samples);
        let before = self.in_flight.back().filter(|step| !step.is_deferred());
        let (step, after, tokens) = (plan.id.0, before.map(|step| step.plan.0), input.tokens.len());
        let (device, grammars) = (&mut self.device, &mut self.grammars);
        let sampling = catch_panic(|| {
            device.forward(step, after, input)?;
            if deferred || masked || idle {
                device.dispatch(step)?;
            }
            if deferred {
                return Ok(StepSampling::Deferred);
            }
            let masks =
                grammars.take_masks(samples.iter().map(|(sequence, drafts)| (*sequence, &drafts[..])));
            device.sample(step, SamplingChanges { masks, drafts, ..SamplingChanges::default() })?;
            Ok(StepSampling::Launched)
        })?;
        // A step with a prompt may have waited for its request.
        let follows = plan.scheduled.iter().all(|work| work.is_decode());
        if let Some(drafts) = &mut self.drafts
            && let Some(read) = self.last_read_at.filter(|_| idle && follows)
        {
            // What follows is in the time that the step takes.
            drafts.add_host_time(started.saturating_duration_since(read));
        }
        let (rows, record) = (self.energy_rows(plan), self.recorded(plan));
        let (plan, superseded) = (plan.id, BTreeSet::new());
        let step =
            InFlightStep { plan, samples, superseded, tokens, rows, record, sampling, started, drafting };
        self.in_flight.push_back(step);
        Ok(())
    }

    /// True if one of these sequences has a grammar.
    fn is_masked(&self, samples: &[SampledSequence]) -> bool {
        samples.iter().any(|(sequence, _)| self.grammars.contains(*sequence))
    }

    /// The step's rows with the changes of sampling state since the last step, and the sampled sequences with their draft
    /// tokens.
    fn step_input(&mut self, plan: &Plan) -> mlx::Result<(StepInput, Vec<SampledSequence>)> {
        let mut samples = Vec::new();
        let before = self.in_flight.back();
        let row_of = |plan, sample| before.filter(|step| step.plan == plan).map(|step| step.row_of(sample));
        let mut input = StepInput { changes: std::mem::take(&mut self.changes), ..StepInput::default() };
        for work in &plan.scheduled {
            let Some(active) = self.jobs.get(&work.sequence) else { continue };
            if active.job.request.goal != Goal::Compute && self.known.insert(work.sequence) {
                input.changes.added.push(NewSequence {
                    sequence: work.sequence,
                    sampling: active.job.sampling.clone(),
                    logprobs: active.job.logprobs,
                    logprob_token_ids: active.job.logprob_token_ids.clone(),
                    tokens: self.scheduler.tokens(work.sequence).to_vec(),
                    prompt: active.job.prompt,
                    late_stops: LateStops::of(&active.job),
                    xtc_kept: active.job.xtc_kept.clone(),
                    dry_breakers: active.job.dry_breakers.clone(),
                });
            }
            let request = RequestRows {
                prompt: active.job.prompt,
                prompt_logprobs: active.job.prompt_logprobs,
                logprob_start: active.job.logprob_start,
                hidden: active.job.hidden,
                token_logits: &active.job.token_logits,
                unattended: active.job.unattended,
                adapter: active.job.request.adapter,
                keeps_states: self.drafts.as_ref().is_some_and(Drafts::keeps_states)
                    && self.device.traits().keeps_states
                    && may_draft(&active.job),
            };
            let drafts = match &mut self.drafts {
                Some(drafts) => drafts.take(work.sequence, work.draft_tokens()),
                // The proposer failed after the step was planned.
                None => RowDrafts::Known(vec![0; work.draft_tokens()]),
            };
            input.push(work, &self.scheduler, request, &drafts, row_of)?;
            let of = self.media.get(work.sequence);
            let media = of.map(SequenceMedia::media).unwrap_or_default();
            let positions = of.and_then(SequenceMedia::positions);
            input.push_media(work, (media, active.job.alignment.as_ref()), &active.spans, positions);
            if work.samples > 0 {
                samples.push((work.sequence, drafts.into_tokens()));
            }
        }
        Ok((input, samples))
    }

    /// True if a row's sampling depends on a token that is still in flight.
    fn is_deferred(&self, plan: &Plan) -> bool {
        plan.scheduled.iter().any(|work| {
            matches!(work.input, TokenSource::InFlight { .. })
                && self
                    .jobs
                    .get(&work.sequence)
                    .is_some_and(|active| needs_history(&active.job.sampling) || active.job.grammar.is_some())
        })
    }

    /// Reports the sequences whose first step this is, before anything is computed: if the step crashes the process, the
    /// supervisor knows which jobs were in it.
    fn report_starts(&mut self, plan: &Plan, lookups: &[PrefixLookup]) {
        let before = self.reports.len();
        self.media.count(plan, lookups, &mut self.device);
        for work in &plan.scheduled {
            if work.positions.start == work.cached
                && let Some(active) = self.jobs.get(&work.sequence)
            {
                let lookup = lookups.iter().find(|lookup| lookup.sequence == work.sequence);
                let history_changed_at = match lookup.and_then(|lookup| lookup.miss) {
                    Some(CacheMiss::HistoryChanged { position }) => Some(position),
                    _ => None,
                };
                let media = self.media.usage(work.sequence);
                let update = JobUpdate::Started { cached_tokens: work.cached, history_changed_at, media };
                self.reports.push(JobReport { job: active.job.id, update });
            } else if let Some(active) = self.jobs.get(&work.sequence)
                && active.job.progress == ProgressReports::On
                && !work.is_decode()
            {
                let update = JobUpdate::Progress { computed: work.positions.start };
                self.reports.push(JobReport { job: active.job.id, update });
            }
        }
        if self.reports.len() > before {
            // A disconnect is noticed at the end of the iteration.
            let _later = self.report();
        }
    }

    /// Waits for the oldest step in flight and reports its tokens. Then the next step's deferred sampling, if any, is
    /// launched.
    fn read_oldest(&mut self) -> mlx::Result<()> {
        let Some(mut step) = self.in_flight.pop_front() else { return Ok(()) };
        let waiting = Instant::now();
        let result = catch_panic(|| self.device.read(step.plan.0));
        self.stats.add_waiting(waiting.elapsed());
        if let (Err(_), Some(_), Some(drafts)) = (&result, step.drafting, &mut self.drafts) {
            drafts.read_all();
        }
        let StepResult { sampled, prompts, drafts, built } = result?;
        step.take_drafts(drafts);
        let took = self.took(&step);
        self.share_energy(&step.rows);
        tracing::trace!(step = step.plan.0, took_us = took, "step read");
        for (sequence, update) in prompts {
            if let Some(active) = self.jobs.get(&sequence) {
                self.reports.push(JobReport { job: active.job.id, update });
            }
        }
        let StepTokens { outputs, accepted, forced } = self.verify(&step, sampled);
        // Events come in the order of the rows, so each token is found with its log-probability in one pass.
        let mut accepted = accepted.into_iter();
        let committing = Instant::now();
        let events =
            self.scheduler.commit(Outcome { plan: step.plan, outputs, took: (!built).then_some(took) });
        self.stats.add_planning(committing.elapsed());
        for event in events {
            match event {
                core::Event::Token { sequence, .. } => {
                    if let Some((_, token)) = accepted.find(|(id, _)| *id == sequence) {
                        self.handle_token(sequence, token);
                    }
                }
                other => self.handle_event(other),
            }
        }
        forced.into_iter().for_each(|(sequence, forced)| self.force(sequence, &forced));
        self.offer_drafts(&step);
        let seconds = step.started.elapsed().as_secs_f64();
        self.stats.add_step(StepStats { seconds, tokens: step.tokens });
        if let Some(record) = step.record {
            self.add_record(record, seconds);
        }
        self.panics = 0;
        self.sample_deferred()
    }

    /// Launches the sampling of the oldest step in flight, if it was deferred.
    fn sample_deferred(&mut self) -> mlx::Result<()> {
        let Some(mut step) = self.in_flight.pop_front() else { return Ok(()) };
        if step.is_deferred() {
            let sampled = step.samples.iter().map(|(sequence, _)| *sequence);
            let masked = sampled.filter(|sequence| !step.superseded.contains(sequence));
            // A step that waits for tokens has no draft tokens.
            let masked = masked.map(|sequence| (sequence, &[][..]));
            let mut changes = std::mem::take(&mut self.changes);
            changes.masks = self.grammars.take_masks(masked);
            let device = &mut self.device;
            catch_panic(|| device.sample(step.plan.0, changes))?;
            step.sampling = StepSampling::Launched;
        }
        self.in_flight.push_front(step);
        Ok(())
    }

    /// How long the step that was just read kept the device busy, in microseconds.
    fn took(&mut self, step: &InFlightStep) -> Tick {
        let now = Instant::now();
        let began = self.last_read_at.map_or(step.started, |last| last.max(step.started));
        self.last_read_at = Some(now);
        ((now - began).as_micros() as Tick).saturating_sub(step.drafting.unwrap_or(0)).max(1)
    }

    /// Reports a token.
    fn handle_token(&mut self, sequence: SequenceId, token: TokenLogprobs) {
        let Some(active) = self.jobs.get_mut(&sequence) else { return };
        active.reported += 1;
        if self.known.contains(&sequence) {
            self.changes.appended.push((sequence, vec![token.token]));
        }
        self.reports.push(JobReport { job: active.job.id, update: JobUpdate::Token(token) });
    }

    fn handle_event(&mut self, event: core::Event) {
        match event {
            // Tokens come with their log-probabilities: see `read_oldest`.
            core::Event::Token { .. } => {}
            core::Event::Finished { sequence, reason } => self.end_job(sequence, finished(reason)),
            core::Event::Failed { sequence, failure } => self.end_job(sequence, failed(failure)),
        }
    }

    /// Reports the end of a sequence.
    fn end_job(&mut self, sequence: SequenceId, update: JobUpdate) {
        let Some(active) = self.jobs.remove(&sequence) else { return };
        self.media.remove(sequence);
        if let Some(drafts) = &mut self.drafts {
            drafts.remove(sequence);
        }
        let update = match (update, self.grammars.take_failure(sequence)) {
            (JobUpdate::Failed(_), Some(message)) => {
                let message = format!("structured output: {message}");
                JobUpdate::Failed(Failure::Engine { message })
            }
            (update, _) => update,
        };
        if self.known.remove(&sequence) {
            self.changes.removed.push(sequence);
        }
        self.stats.finished();
        let update = match (&mut self.prompt_file, update) {
            (Some(file), JobUpdate::Finished(reason)) => {
                match file.finish(&self.scheduler, &mut self.device) {
                    Ok(()) => JobUpdate::Finished(reason),
                    Err(failure) => JobUpdate::Failed(failure),
                }
            }
            (_, update) => update,
        };
        self.report_drafts(&active);
        self.report_energy(&active);
        self.reports.push(JobReport { job: active.job.id, update });
    }

    fn now(&self) -> Tick {
        self.started_at.elapsed().as_micros() as Tick
    }
}

fn finished(reason: core::FinishReason) -> JobUpdate {
    match reason {
        core::FinishReason::Stop => JobUpdate::Finished(FinishReason::Stop),
        // For clients, no tokens are as many as were requested.
        core::FinishReason::Length | core::FinishReason::Computed => {
            JobUpdate::Finished(FinishReason::Length)
        }
        core::FinishReason::Cancelled => JobUpdate::Finished(FinishReason::Cancelled),
        // The front fills in the limit.
        core::FinishReason::Deadline => JobUpdate::Failed(Failure::Timeout { after_s: 0.0 }),
    }
}
