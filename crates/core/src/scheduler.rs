//! Decides which sequences advance, and records which blocks each holds.
//!
//! Each part of the state has an owner with a file of its own: [`sequences`] (waiting, running, being released), the
//! [`KvCacheManager`], [`in_flight`] steps, [`recovery`] from failed ones, the state of a [`policy`], [`sessions`],
//! [`swap`], prefix [`lookup`]s, and the [`queue`]'s limit. [`Scheduler`] coordinates them: here what clients request, in
//! [`apply`] and [`commit`] what a step does, in [`offload`] what the engine's offload tiers need.
//!
//! Invariant: the state is always that after all steps in flight, as if their samples had arrived; so planning past a
//! step in flight is planning. A block in use by a step in flight is not handed out until that step is committed.

mod apply;
mod audit;
mod batch;
mod bisect;
mod commit;
mod encoding;
mod fair;
mod fcfs;
mod free_blocks;
mod held_blocks;
mod in_flight;
mod lookup;
mod offers;
mod offload;
mod plan_builder;
mod policy;
mod prefill_budget;
mod queue;
mod queued_load;
mod recovery;
mod remote_prefill;
mod sequences;
mod sessions;
mod split;
mod swap;
mod waiting;

use omnibus_kv::BlockTable;

use crate::cost::CostModel;
use crate::drafting::Drafting;
use crate::event::{Event, Failure, FinishReason};
use crate::kv_cache::KvCacheManager;
use crate::plan::{Plan, PlanId, PreemptionMode};
use crate::request::{Class, Goal, Rejection, Request, SequenceId, Tick, Token};
use crate::sequence::{Phase, Sequence};
use crate::settings::{Schedule, Settings, StepLimits};
use crate::stats::{SessionInfo, Stats};
use encoding::EncodingCost;
pub use held_blocks::HeldBlocks;
use in_flight::{InFlightSequence, StepsInFlight};
use lookup::PrefixLookups;
pub use offload::OffloadTier;
use plan_builder::PlanBuilder;
use policy::PolicyState;
use queue::QueueLimit;
use recovery::Recovery;
pub use remote_prefill::RemotePrompt;
use sequences::Sequences;
use sessions::Sessions;
use swap::Swaps;

/// Decides which sequences advance, and in which blocks.
#[derive(Debug, Clone)]
pub struct Scheduler {
    settings: Settings,
    sequences: Sequences,
    kv_cache: KvCacheManager,
    steps: StepsInFlight,
    recovery: Recovery,
    policy: PolicyState,
    sessions: Sessions,
    swaps: Swaps,
    lookups: PrefixLookups,
    queue: QueueLimit,
    cost: CostModel,
    encoding: EncodingCost,
    drafting: Drafting,
    totals: Stats,
    /// Changes with every change of state.
    version: PlanId,
}

impl Scheduler {
    /// A scheduler with nothing to do. Panics on settings that could never run anything.
    pub fn new(settings: Settings) -> Self {
        settings.check();
        Self {
            sequences: Sequences::default(),
            kv_cache: KvCacheManager::new(&settings),
            steps: StepsInFlight::default(),
            recovery: Recovery::new(settings.limits(), settings.block_size),
            policy: PolicyState::default(),
            sessions: Sessions::new(settings.session_ttl),
            swaps: Swaps::new(&settings),
            lookups: PrefixLookups::default(),
            queue: QueueLimit::new(&settings),
            cost: CostModel::padded(settings.tuning.padding),
            encoding: EncodingCost::default(),
            drafting: Drafting::default(),
            totals: Stats::default(),
            version: PlanId(0),
            settings,
        }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The longest sequence that can be taken, in tokens, prompt and answer together.
    pub fn max_sequence_tokens(&self) -> usize {
        self.kv_cache.max_sequence_tokens().min(self.settings.max_context)
    }

    /// Queues a request. Refuses what could not run even alone; that is what makes progress certain: the oldest
    /// sequence can always have all blocks.
    pub fn submit(&mut self, now: Tick, request: Request) -> Result<SequenceId, Rejection> {
        if request.prompt.is_empty() || request.goal == (Goal::Generate { max_new_tokens: 0 }) {
            return Err(Rejection::Empty);
        }
        self.check_length(&request)?;
        self.check_spans(&request)?;
        self.queue.check(self.sequences.waiting(), (request.class, request.tenant))?;
        self.version.0 += 1;
        self.sessions.advance(now, &mut self.kv_cache);
        self.sessions.join(request.session, &mut self.kv_cache);
        let rank = self.sequences.new_rank(now, &request);
        let tables = self.kv_cache.empty_tables();
        let own = (tables, self.drafting.sequence());
        self.sequences.insert(Box::new(Sequence::new(request, (rank, now), &self.settings, own)));
        Ok(rank.id)
    }

    /// Fails for a sequence that is longer than the context, or than the KV cache has blocks for.
    fn check_length(&self, request: &Request) -> Result<(), Rejection> {
        let (needed, total) = (request.max_tokens(), self.max_sequence_tokens());
        let fits = request.max_computed() < self.kv_cache.max_sequence_tokens();
        if needed <= self.settings.max_context && fits {
            return Ok(());
        }
        Err(Rejection::TooLong { needed, total })
    }

    /// Fails for a span that no step has memory for.
    fn check_spans(&self, request: &Request) -> Result<(), Rejection> {
        for span in &request.spans {
            let limit = self.settings.max_span_tokens.min(self.kv_cache.max_span_tokens(span.start));
            if span.len() > limit.max(1) {
                return Err(Rejection::SpanTooLong { span: span.len(), limit });
            }
        }
        Ok(())
    }

    /// Ends a sequence, at any time. Its event, or none if it had ended before or was never there.
    pub fn cancel(&mut self, id: SequenceId) -> Option<Event> {
        let reason = FinishReason::Cancelled;
        self.end(id, Event::Finished { sequence: id, reason })
    }

    /// Like [`Self::cancel`], for a sequence that the engine cannot continue.
    pub fn fail(&mut self, id: SequenceId) -> Option<Event> {
        let failure = Failure::Engine;
        self.end(id, Event::Failed { sequence: id, failure })
    }

    /// Decides the next step without changing anything. Looks past the steps in flight: assumes that their
    /// samples arrive and end no sequence, unless its length does. The same state and time give the same plan.
    /// It is empty while two steps are in flight, or one and a sequence has draft tokens.
    pub fn plan(&self, now: Tick) -> Plan {
        let mut builder = PlanBuilder::new(self, now);
        let waits = self.steps.len() > 0 && self.is_drafting();
        if !self.steps.is_full() && !waits {
            if self.recovery.is_on() {
                bisect::fill(&mut builder);
            } else {
                match self.settings.schedule {
                    Schedule::Fair => fair::fill(&mut builder, now),
                    Schedule::Fcfs => fcfs::fill(&mut builder),
                    Schedule::Static => batch::fill(&mut builder, now),
                    Schedule::Split => split::fill(&mut builder),
                }
            }
        }
        builder.into_plan()
    }

    /// When the plan may change without an event: a batch begins that is not full, or a deadline passes.
    pub fn next_wakeup(&self) -> Option<Tick> {
        let deadline = self.sequences.next_deadline();
        let batch = match self.settings.schedule {
            Schedule::Static => batch::next_wakeup(self),
            Schedule::Fair | Schedule::Fcfs | Schedule::Split => None,
        };
        deadline.into_iter().chain(batch).min()
    }

    /// Drops every plan in flight after a step failed as a whole. All blocks are suspect, so all sequences wait again and are
    /// recomputed from their tokens, the prefix cache is emptied, and the limits of a step are halved. Sequences of the
    /// failed steps then run in ever smaller groups, one step each, before any other; one that fails alone in the smallest
    /// step ends. No token is returned twice.
    pub fn fail_steps(&mut self) -> Vec<Event> {
        self.version.0 += 1;
        self.totals.failed_steps_total += 1;
        let steps = self.steps.fail();
        self.restart();
        let sequence = |id| self.sequences.get(id);
        let is_span = |part: &InFlightSequence| {
            sequence(part.id).is_some_and(|of| of.cache.spans.contains(&(part.start..part.end)))
        };
        let faulty = self.recovery.failed(&steps, |id| sequence(id).is_some(), is_span);
        let failed = |sequence| Event::Failed { sequence, failure: Failure::Step };
        faulty.and_then(|id| self.end(id, failed(id))).into_iter().collect()
    }

    /// The most the next step may do; less than the settings say after a failed step, for a while, and where
    /// [`crate::Tuning::step_time`] says so.
    pub fn limits(&self) -> StepLimits {
        let limits = self.recovery.limits();
        let Some(step_time) = self.settings.tuning.step_time else { return limits };
        let prompts = self.sequences.running().filter(|sequence| sequence.computed < sequence.prompt);
        let context = prompts.map(|sequence| sequence.computed).max().unwrap_or(0);
        let tokens = step_time.tokens(&self.cost, context, limits.tokens);
        // Every running sequence still has its next token.
        let tokens = tokens.max(self.sequences.running_count().saturating_add(1)).min(limits.tokens);
        StepLimits { tokens, ..limits }
    }

    /// The blocks of a sequence in a group, as of the last [`Self::apply`]. Panics if the sequence is not there.
    pub fn block_table(&self, id: SequenceId, group: usize) -> &BlockTable {
        &self.sequences[id].cache.tables[group]
    }

    /// Prompt, then everything sampled so far. Panics if the sequence is not there. A sequence is there until its
    /// last event, and in any case until the last plan that holds it is committed.
    pub fn tokens(&self, id: SequenceId) -> &[Token] {
        &self.sequences[id].tokens
    }

    /// Plans begun and not committed.
    pub fn in_flight(&self) -> usize {
        self.steps.len()
    }

    /// How long steps take, as learned so far.
    pub fn cost(&self) -> &CostModel {
        &self.cost
    }

    /// True when no sequence is left.
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty()
    }

    /// The sessions that have not ended.
    pub fn sessions(&self, now: Tick) -> Vec<SessionInfo> {
        self.sessions.list(now, &self.kv_cache)
    }

    /// Ends a session. A running request of it continues, and starts it anew when it ends. False for an unknown id.
    pub fn drop_session(&mut self, id: u128) -> bool {
        self.sessions.drop_session(id, &mut self.kv_cache)
    }

    /// Expected microseconds until half of the waiting online sequences have been served: prefill of their prompts and
    /// decode of outputs of the usual length, beside the running ones. Zero if none waits.
    pub fn retry_after(&self) -> Tick {
        self.queue.retry_after(&self.sequences, &self.settings, &self.cost)
    }

    /// Waiting sequences of a class.
    pub fn queued(&self, class: Class) -> usize {
        self.sequences.waiting().count(class)
    }

    /// Gauges and counters.
    pub fn stats(&self) -> Stats {
        Stats {
            queued: self.sequences.waiting().len(),
            running: self.sequences.holding_count(),
            suspects: self.recovery.suspects(),
            sessions: self.sessions.len(),
            groups: self.kv_cache.stats(),
            prefix_misses: self.lookups.misses(),
            ..self.totals.clone()
        }
    }

    /// Panics if the state contradicts itself. Costs a pass over everything, so only tests call it.
    pub fn audit(&self) {
        audit::audit(self);
    }

    /// Ends a sequence unless it has ended. What a step in flight uses stays until that is committed.
    fn end(&mut self, id: SequenceId, event: Event) -> Option<Event> {
        let sequence = self.sequences.get(id).filter(|sequence| sequence.phase != Phase::Ended)?;
        self.version.0 += 1;
        self.recovery.forget(id);
        match sequence.is_in_flight() {
            true => self.sequences.enter(id, Phase::Ended),
            false => self.remove(id),
        }
        Some(event)
    }

    /// Sends a sequence back to wait. What a step in flight uses stays until that is committed.
    fn preempt(&mut self, id: SequenceId, mode: PreemptionMode) {
        self.totals.preemptions_total += 1;
        match mode {
            PreemptionMode::Swap => self.totals.swap_preemptions_total += 1,
            PreemptionMode::Recompute => self.cost.transfers.doubt(),
        }
        let Some(sequence) = self.sequences.get_mut(id) else { return };
        sequence.offload.mode = mode;
        match sequence.is_in_flight() {
            true => self.sequences.enter(id, Phase::Preempted),
            false => self.wait(id),
        }
    }

    /// Releases everything a sequence holds and lets it wait.
    fn wait(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(id) {
            self.swaps.note(sequence, &mut self.kv_cache);
            self.kv_cache.release(&mut sequence.cache.tables);
            sequence.restart();
        }
        self.sequences.enter(id, Phase::Waiting);
    }

    fn remove(&mut self, id: SequenceId) {
        if let Some(mut sequence) = self.sequences.remove(id) {
            self.sessions.keep(&sequence, &mut self.kv_cache);
            self.kv_cache.release(&mut sequence.cache.tables);
        }
    }

    /// Releases all blocks. Sequences that have ended are removed; the others wait.
    fn restart(&mut self) {
        self.kv_cache.reset();
        self.sessions.clear();
        self.swaps.clear();
        let kv_cache = &self.kv_cache;
        let ended = self.sequences.restart(|sequence| {
            sequence.cache.tables = kv_cache.empty_tables();
            sequence.in_flight.clear();
            sequence.restart();
        });
        ended.iter().for_each(|sequence| self.sessions.leave(sequence.session));
    }
}
