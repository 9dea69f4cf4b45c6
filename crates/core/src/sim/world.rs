//! The loop that runs a scenario, and what must hold after every step.

mod unsampled;

use std::ops::Range;

use omnibus_kv::CacheKind;

use super::clients::{Clients, Excuses};
use super::device::{Device, Job, RowResult};
use super::script::Script;
use super::starvation::Starvation;
use super::tier::Storage;
use super::{Audits, Overlap, Report, Rng, Scenario};
use crate::event::Event;
use crate::outcome::{Outcome, Stop};
use crate::plan::{Plan, ScheduledSequence};
use crate::request::{Class, SequenceId, Tick};
use crate::scheduler::Scheduler;
use crate::settings::{CacheGroup, Schedule, Settings};

/// The oldest sequence is computed at least once in so many steps, while no step fails.
const STARVATION_STEPS: u64 = 3;
/// The longest sleep without another plan.
const SLEEP_MAX: Tick = 10_000;
/// Most steps for each token of the world, including failed ones, and a constant.
const STEPS_PER_TOKEN: u64 = 4;
const STEPS_MORE: u64 = 100;

/// A running scenario.
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    rng: Rng,
    now: Tick,
    /// Offset of the time that the scheduler is given.
    ahead: i128,
    scheduler: Scheduler,
    device: Device,
    storage: Storage,
    scripts: Vec<Script>,
    clients: Clients,
    /// Index of the next arrival.
    next_arrival: usize,
    /// Clients that will disconnect, and when.
    leaving: Vec<(Tick, SequenceId)>,
    /// Steps that were committed or failed.
    attempts: u64,
    attempts_max: u64,
    /// Most computed positions of one sequence.
    longest: usize,
    /// The time given to the last plan, if it scheduled no sequence.
    workless_at: Option<Tick>,
    /// Consecutive plans that preempted and scheduled none.
    preempting_plans: usize,
    starvation: Starvation,
    random_failures: usize,
    /// The sequence that was alone in the last failed steps, and how many of those failed at random in a row.
    failed_alone: (Option<SequenceId>, usize),
    report: Report,
}

impl<'a> World<'a> {
    /// Before the first arrival.
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let scripts = (0..scenario.arrivals.len()).map(|index| Script::new(scenario, index));
        let scripts: Vec<Script> = scripts.collect();
        let tokens: usize = scripts.iter().map(|script| script.tokens.len()).sum();
        Self {
            scenario,
            rng: Rng::new(scenario.seed),
            now: 0,
            ahead: 0,
            scheduler: Scheduler::new(scenario.settings.clone()),
            device: Device::new(&scenario.settings),
            storage: Storage::new(&scenario.tier, &scenario.settings, scenario.seed),
            scripts,
            clients: Clients::default(),
            next_arrival: 0,
            leaving: Vec::new(),
            attempts: 0,
            attempts_max: STEPS_MORE + STEPS_PER_TOKEN * tokens as u64,
            longest: longest(&scenario.settings),
            workless_at: None,
            preempting_plans: 0,
            starvation: Starvation::default(),
            random_failures: 0,
            failed_alone: (None, 0),
            report: Report::default(),
        }
    }

    /// Runs until every client has a terminal event.
    pub(super) fn run(mut self) -> Report {
        let flights_max = if self.scenario.overlap == Overlap::On { 2 } else { 1 };
        loop {
            self.arrive();
            self.leave();
            self.load();
            if self.device.in_flight() < flights_max && self.plan() {
                continue;
            }
            if self.device.in_flight() > 0 {
                self.finish();
            } else if let Some(next) = self.next() {
                self.now = self.now.max(next);
            } else {
                return self.close();
            }
        }
    }

    /// The time of the next event that needs no step.
    fn next(&self) -> Option<Tick> {
        let arrival = self.scenario.arrivals.get(self.next_arrival).map(|arrival| arrival.at);
        let given = self.given_time();
        let planned = self.scheduler.next_wakeup().filter(|_| !self.scheduler.is_idle());
        // Where time jumps, what was far away a moment ago may be near.
        let planned = planned.map(|change| self.now + change.saturating_sub(given).clamp(1, SLEEP_MAX));
        arrival.into_iter().chain(self.storage.next()).chain(planned).min()
    }

    /// Finishes reads from the disk tier; sometimes looks something up there.
    fn load(&mut self) {
        self.storage.load(&mut self.scheduler, &mut self.device, self.now);
        if self.rng.one_in(8)
            && let Some(id) = self.clients.live().nth(self.rng.below(4) as usize)
        {
            self.storage.fetch(&mut self.scheduler, id, self.now);
        }
    }

    fn arrive(&mut self) {
        while let Some(arrival) = self.scenario.arrivals.get(self.next_arrival)
            && arrival.at <= self.now
        {
            self.submit(self.next_arrival);
            self.next_arrival += 1;
        }
    }

    /// The time that the scheduler is given.
    fn given_time(&self) -> Tick {
        Tick::try_from((i128::from(self.now) + self.ahead).max(0)).unwrap_or(Tick::MAX)
    }

    /// A clock that jumps, as when it is set or the machine sleeps.
    fn jump(&mut self) {
        if self.rng.one_in(self.scenario.faults.jump_one_in) {
            let jumps =
                [0, 1_000, -1_000, 60_000_000, -60_000_000, i128::from(Tick::MAX), -i128::from(Tick::MAX)];
            self.ahead = jumps[self.rng.below(jumps.len() as u64) as usize];
            // More deadlines may have passed at once.
            self.workless_at = None;
        }
    }

    fn submit(&mut self, index: usize) {
        let script = &self.scripts[index];
        let settings = &self.scenario.settings;
        let (queued, max_queue) = match script.arrival.class {
            Class::Online => (self.scheduler.queued(Class::Online), settings.max_queue),
            Class::Offline => (self.scheduler.queued(Class::Offline), settings.max_offline_queue),
        };
        let fits = script.tokens.len() <= settings.max_context
            && script.computed() <= self.longest
            && script.spans.iter().all(|span| span_fits(settings, span));
        let given = self.given_time();
        let submitted = self.scheduler.submit(given, script.request(given));
        match submitted {
            Ok(_) => assert!(fits && queued < max_queue + max_queue.div_ceil(4), "took what is not possible"),
            Err(_) => assert!(!fits || queued >= max_queue, "refused what is possible"),
        }
        let Ok(id) = submitted else {
            self.report.refused += 1;
            return;
        };
        self.clients.join(id, given, (index, script));
        let leaves = script.arrival.leaves_after.map(|after| (script.arrival.at + after, id));
        self.leaving.extend(leaves);
        self.storage.fetch(&mut self.scheduler, id, self.now);
    }

    /// Clients disconnect, and the engine fails sequences.
    fn leave(&mut self) {
        let now = self.now;
        let (gone, rest): (Vec<_>, Vec<_>) = self.leaving.drain(..).partition(|(at, _)| *at <= now);
        self.leaving = rest;
        gone.into_iter().for_each(|(_, id)| self.cancel(id));
        if self.rng.one_in(40) {
            let session = self.rng.below(6);
            let known = self.scheduler.stats().sessions;
            let dropped = self.scheduler.drop_session(u128::from(session));
            assert_eq!(self.scheduler.stats().sessions, known - usize::from(dropped));
            self.scheduler.audit();
        }
        if self.rng.one_in(self.scenario.faults.drafts_one_in)
            && let Some(id) = self.clients.live().next()
        {
            self.scheduler.set_draft_tokens(id, self.rng.below(5) as usize);
        }
        if self.rng.one_in(self.scenario.faults.loss_one_in) {
            let live: Vec<_> = self.clients.live().collect();
            if live.is_empty() {
                return;
            }
            let id = live[self.rng.below(live.len() as u64) as usize];
            if self.rng.one_in(2) {
                self.cancel(id);
            } else {
                let event = self.scheduler.fail(id);
                self.clients.leave(id, event, now);
                assert_eq!(self.scheduler.fail(id), None, "ended twice");
            }
        }
    }

    fn cancel(&mut self, id: SequenceId) {
        let event = self.scheduler.cancel(id);
        self.clients.leave(id, event, self.now);
        assert_eq!(self.scheduler.cancel(id), None, "ended twice");
        self.audit();
    }

    /// Plans and launches a step. False if there is nothing to do but wait.
    fn plan(&mut self) -> bool {
        self.jump();
        let plan = self.plan_and_bring_back();
        if plan.is_empty() {
            let is_held = |id| self.scheduler.is_held(id);
            // The others pause during a bisect, and a held suspect's group comes later.
            let free = match self.scheduler.stats().suspects {
                0 => self.clients.live().any(|id| !is_held(id)),
                _ => !self.clients.live().any(is_held),
            };
            let waits = self.scheduler.next_wakeup().is_some_and(|change| change > self.given_time());
            let may_wait = self.scenario.settings.schedule == Schedule::Static && waits;
            assert!(
                self.scheduler.in_flight() > 0 || !free || may_wait,
                "a sequence waits, and no step runs: {:?}",
                self.scheduler.stats()
            );
            self.workless_at = None;
            return false;
        }
        let allocation = self.scheduler.apply(&plan);
        let took = self.storage.swap_out(&mut self.scheduler, &self.device, &allocation.swaps);
        self.wait_for_move(took);
        self.device.copy(&allocation.copies);
        for lookup in &allocation.lookups {
            let scheduled = plan.scheduled.iter().find(|scheduled| scheduled.sequence == lookup.sequence);
            assert_eq!(
                scheduled.map(|scheduled| scheduled.cached),
                Some(lookup.cached),
                "the cache hit is not the planned one"
            );
            let prompt = self.scripts[self.clients.script(lookup.sequence)].arrival.prompt;
            assert_eq!(lookup.cached + lookup.computed, prompt, "a prompt is looked up once, and whole");
        }
        self.send(allocation.events, &Excuses::default());
        self.check_workless(&plan);
        if !plan.scheduled.is_empty() {
            self.launch(&plan);
        }
        self.audit();
        true
    }

    /// Panics if a plan without scheduled sequences follows another one, unless it only ends sequences whose deadline
    /// passed between the two (blocks may have been transferred meanwhile, which takes time), or unless it preempts, and the
    /// one before only ended sequences or preempted for the other pool of `split`.
    fn check_workless(&mut self, plan: &Plan) {
        let is_workless = plan.scheduled.is_empty();
        let preempts = is_workless && !plan.preempt.is_empty();
        self.preempting_plans = if preempts { self.preempting_plans + 1 } else { 0 };
        if let Some(last) = self.workless_at.filter(|_| is_workless) {
            let scripts = &self.scripts;
            let passed = |id: &SequenceId| {
                let deadline = self.clients.deadline(*id, scripts);
                deadline.is_some_and(|deadline| last < deadline && deadline <= plan.at)
            };
            let pools = if self.scenario.settings.schedule == Schedule::Split { 2 } else { 1 };
            let may_preempt = (1..=pools).contains(&self.preempting_plans);
            assert!(
                (plan.preempt.is_empty() || may_preempt) && plan.expire.iter().all(passed),
                "a plan that only takes back is followed by one that computes or by waiting: {plan:?}"
            );
        }
        self.workless_at = is_workless.then_some(plan.at);
    }

    /// Plans, and restores offloaded blocks of admitted sequences, until there are no more.
    fn plan_and_bring_back(&mut self) -> Plan {
        loop {
            let plan = self.scheduler.plan(self.given_time());
            self.check_plan(&plan);
            for id in self.scheduler.newly_admitted(&plan) {
                let (scheduler, device) = (&mut self.scheduler, &mut self.device);
                let took = self.storage.bring_back(scheduler, device, id, self.now);
                self.wait_for_move(took);
                if !self.scheduler.is_current(&plan) {
                    break;
                }
            }
            if self.scheduler.is_current(&plan) {
                return plan;
            }
            self.audit();
        }
    }

    /// Blocks are transferred between steps.
    fn wait_for_move(&mut self, took: Tick) {
        if took > 0 {
            self.now = self.now.max(self.device.free_at()) + took;
        }
    }

    fn check_plan(&self, plan: &Plan) {
        assert_eq!(
            *plan,
            self.scheduler.plan(self.given_time()),
            "planning is deterministic and changes nothing"
        );
        let limits = self.scheduler.limits();
        let settings = &self.scenario.settings;
        let tokens_max = limits.tokens.min(settings.max_step_tokens);
        let spans = plan.scheduled.iter().filter(|scheduled| self.is_span(scheduled));
        let longest = spans.map(|scheduled| scheduled.positions.len()).max();
        let is_exceeded = longest.is_some_and(|span| plan.tokens() - span < tokens_max);
        assert!(plan.tokens() <= tokens_max || is_exceeded, "too many tokens beside a span");
        assert!(plan.scheduled.len() <= limits.sequences.min(settings.max_sequences), "too many sequences");
        for (at, scheduled) in plan.scheduled.iter().enumerate() {
            assert!(!scheduled.positions.is_empty(), "a sequence without tokens");
            let script = &self.scripts[self.clients.script(scheduled.sequence)];
            let cuts = |at: usize| script.spans.iter().any(|span| span.start < at && at < span.end);
            let Range { start, end } = scheduled.positions;
            assert!(!cuts(start) && !cuts(end), "{:?} is computed in parts of a span", scheduled.sequence);
            let twice = plan.scheduled[..at].iter().any(|other| other.sequence == scheduled.sequence);
            assert!(!twice, "{:?} is in the step twice", scheduled.sequence);
        }
    }

    /// Whether what a sequence computes is one of its spans.
    fn is_span(&self, scheduled: &ScheduledSequence) -> bool {
        let script = &self.scripts[self.clients.script(scheduled.sequence)];
        scheduled.positions.len() > 1 && script.spans.contains(&scheduled.positions)
    }

    fn launch(&mut self, plan: &Plan) {
        let results: Vec<RowResult> =
            plan.scheduled.iter().map(|scheduled| self.row_result(scheduled)).collect();
        let begins = self.now.max(self.device.free_at());
        let alone = self.scenario.machine.of(plan);
        let took = self.scenario.faults.interference.of(alone, begins, &mut self.rng);
        let done = begins + took + self.draft(plan);
        let oldest = self.oldest();
        self.starvation.launch(oldest);
        let spans = plan.scheduled.iter().filter(|scheduled| self.is_span(scheduled)).count();
        self.report.spans += spans as u64;
        self.report.exceeded_steps += u64::from(plan.tokens() > self.scheduler.limits().tokens);
        let (clients, scripts) = (&self.clients, &self.scripts);
        self.device.launch(&self.scheduler, plan, &results, (done, took), |id| clients.script(id), scripts);
    }

    /// Whether the sequence's sampling fails; else how many of its tokens are accepted. None after one that stops it.
    fn row_result(&mut self, scheduled: &ScheduledSequence) -> RowResult {
        if scheduled.samples == 0 {
            return RowResult::Good(0);
        }
        if self.rng.one_in(self.scenario.faults.row_one_in) {
            return RowResult::Bad;
        }
        let drawn = match &self.scenario.drafts {
            Some(drafts) => 1 + drafts.accept(scheduled.draft_tokens(), &mut self.rng),
            None if scheduled.samples > 1 => self.rng.within(1..=scheduled.samples),
            None => 1,
        };
        let script = &self.scripts[self.clients.script(scheduled.sequence)];
        let first = scheduled.positions.end - scheduled.draft_tokens();
        let stop = (first..first + drawn).position(|position| script.stop(position) == Stop::Yes);
        RowResult::Good(stop.map_or(drawn, |stop| stop + 1))
    }

    /// The oldest step ends, or fails.
    fn finish(&mut self) {
        let job = self.device.finish();
        self.now = self.now.max(job.done);
        self.arrive();
        self.leave();
        self.load();
        match self.why_it_fails(&job) {
            Some(cause) => self.crash(&job, cause),
            None => self.commit(&job),
        }
        self.storage.keep(&mut self.scheduler, &self.device);
        self.audit();
        self.attempts += 1;
        assert!(self.attempts <= self.attempts_max, "it never ends");
    }

    fn commit(&mut self, job: &Job) {
        let suspects = self.scheduler.stats().suspects;
        self.check_starvation(job, suspects > 0);
        let is_bisect = suspects > 0 && job.sequences.iter().any(|id| self.clients.is_live(*id));
        let outputs = job.outputs(&self.clients, &self.scripts);
        let outcome = Outcome { plan: job.plan, outputs, took: Some(job.took) };
        let failed: Vec<_> = job.failed_rows().collect();
        let events = self.scheduler.commit(outcome);
        let with_token = |event: &Event| matches!(event, Event::Token { .. }).then(|| event.sequence());
        let got_tokens: Vec<SequenceId> = events.iter().filter_map(with_token).collect();
        for event in events {
            let excuses = Excuses { row: failed.contains(&event.sequence()), steps: false };
            self.send(vec![event], &excuses);
        }
        self.offer_drafts(&got_tokens);
        got_tokens.into_iter().for_each(|id| self.force(id));
        if job.sequences.iter().any(|id| self.failed_alone.0 == Some(*id)) {
            self.failed_alone = (None, 0);
        }
        let left = self.scheduler.stats().suspects;
        assert!(!is_bisect || left < suspects, "a good step clears a suspect");
        self.report.steps += 1;
    }

    /// The oldest sequence that is not held, where the policy goes by age; else the first in line.
    fn oldest(&self) -> Option<SequenceId> {
        let mut live = self.clients.live().filter(|id| !self.scheduler.is_held(*id));
        match self.scenario.settings.schedule {
            Schedule::Fair => live.min_by_key(|id| self.clients.place(*id)),
            Schedule::Fcfs | Schedule::Static | Schedule::Split => live.next(),
        }
    }

    /// Panics if the oldest sequence is passed over for too long.
    fn check_starvation(&mut self, job: &Job, is_bisect: bool) {
        let oldest = self.oldest();
        let passed_over = self.starvation.finish(oldest, &job.sequences);
        if is_bisect {
            self.starvation.reset();
            return;
        }
        // One that was held comes back while younger ones are in flight, and they make room first.
        let returning = oldest.is_some_and(|oldest| self.storage.has_held(oldest));
        let most = if returning { 2 * STARVATION_STEPS } else { STARVATION_STEPS };
        // Prefill and decode take turns.
        let most = match self.scenario.settings.schedule {
            Schedule::Split => 2 * most,
            Schedule::Fair | Schedule::Fcfs | Schedule::Static => most,
        };
        assert!(passed_over < most, "{oldest:?} is the oldest, and starves");
    }

    fn why_it_fails(&mut self, job: &Job) -> Option<Cause> {
        let faults = &self.scenario.faults;
        let poisoned =
            job.sequences.iter().any(|id| self.scripts[self.clients.script(*id)].arrival.is_poison);
        if poisoned {
            return Some(Cause::Poison);
        }
        if faults.tokens_max.is_some_and(|max| job.tokens > max)
            || faults.sequences_max.is_some_and(|max| job.sequences.len() > max)
        {
            return Some(Cause::Memory);
        }
        let random = self.random_failures < faults.steps_max && self.rng.one_in(faults.step_one_in);
        random.then_some(Cause::Chance)
    }

    fn crash(&mut self, job: &Job, cause: Cause) {
        let alone = if job.sequences.len() == 1 { job.sequences.first().copied() } else { None };
        let before = if self.failed_alone.0 == alone { self.failed_alone.1 } else { 0 };
        self.failed_alone = (alone, before + usize::from(cause == Cause::Chance));
        self.random_failures += usize::from(cause == Cause::Chance);
        let excuses = Excuses { row: false, steps: alone.is_some() && self.failed_alone.1 >= 2 };
        let events = self.scheduler.fail_steps();
        self.send(events, &excuses);
        self.device.crash();
        self.starvation.crash();
        let stats = self.scheduler.stats();
        assert_eq!(stats.running, 0, "all memory is suspect");
        assert!(stats.groups.iter().all(|group| group.used + group.cached == 0), "all memory is suspect");
    }

    /// Audits the scheduler's state, if the scenario does so after every step.
    fn audit(&self) {
        if self.scenario.audits == Audits::EveryStep {
            self.scheduler.audit();
        }
    }

    fn send(&mut self, events: Vec<Event>, excuses: &Excuses) {
        for event in events {
            self.clients.check(event, (self.now, self.given_time()), &self.scripts, *excuses);
        }
    }

    /// Every client has a terminal event, and no block is left.
    fn close(mut self) -> Report {
        assert!(self.scheduler.is_idle() && self.scheduler.in_flight() == 0, "something is left to do");
        self.scheduler.audit();
        assert!(self.clients.live().next().is_none(), "a client has no terminal event");
        let stats = self.scheduler.stats();
        assert!(stats.groups.iter().all(|group| group.used == 0), "a block is lost");
        let (tokens, blocks): (usize, usize) = self
            .scheduler
            .sessions(self.now)
            .iter()
            .fold((0, 0), |(tokens, blocks), session| (tokens + session.tokens, blocks + session.blocks));
        let pinned: usize = stats.groups.iter().map(|group| group.pinned).sum();
        assert!(blocks == 0 || pinned > 0, "what is kept for a session is pinned");
        self.report.session_tokens = tokens as u64;
        let targets = &self.scenario.settings.tuning.targets;
        self.clients.report(&self.scripts, targets, &mut self.report);
        self.report.restored = self.storage.restored;
        self.report.swapped_out = self.storage.swapped_out;
        self.report.swapped_in = self.storage.swapped_in;
        self.report.end = self.now;
        self.report.stats = stats;
        let limit: u64 = self.scripts.iter().map(|script| script.arrival.max_new_tokens as u64).sum();
        assert!(self.report.stats.generated_tokens_total <= limit, "more tokens than requested");
        self.report
    }
}

/// The most positions that can be computed of one sequence, counted in another way than the scheduler does: up to the
/// first that cannot.
fn longest(settings: &Settings) -> usize {
    let block = |position: usize| position / settings.block_size;
    let fits = |last: usize, group: &CacheGroup| {
        let needed = match group.kind() {
            CacheKind::Full | CacheKind::Latent => block(last) + 1,
            CacheKind::SlidingWindow { tokens, sinks } => {
                let sees = |position: usize| position < sinks || position + tokens > last;
                (0..=block(last))
                    .filter(|at| (0..settings.block_size).any(|i| sees(at * settings.block_size + i)))
                    .count()
            }
            CacheKind::UnquantizedPrefix { tokens } if last < tokens => block(last) + 1,
            CacheKind::UnquantizedPrefix { .. } => 0,
            CacheKind::State => 1,
        };
        needed <= group.blocks as usize
    };
    let computed = |last: &usize| settings.groups.iter().all(|group| fits(*last, group));
    (0..settings.max_context).take_while(computed).count()
}

/// Whether one step can compute a span of a sequence that is alone, counted block by block.
fn span_fits(settings: &Settings, span: &Range<usize>) -> bool {
    let block = |position: usize| position / settings.block_size;
    let fits = |group: &CacheGroup| {
        let needed = match group.kind() {
            CacheKind::Full | CacheKind::Latent => block(span.end - 1) + 1,
            CacheKind::SlidingWindow { tokens, sinks } => {
                let is_held = |position: usize| position < sinks || position + tokens > span.start;
                (0..=block(span.end - 1))
                    .filter(|at| (0..settings.block_size).any(|i| is_held(at * settings.block_size + i)))
                    .count()
            }
            CacheKind::UnquantizedPrefix { tokens } => block(span.end.min(tokens) - 1) + 1,
            CacheKind::State => 1,
        };
        needed <= group.blocks as usize
    };
    span.len() == 1 || span.len() <= settings.max_span_tokens && settings.groups.iter().all(fits)
}

/// Why a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A sequence in it always fails.
    Poison,
    /// It is too large.
    Memory,
    /// Bad luck.
    Chance,
}
