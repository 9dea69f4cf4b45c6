//! Decides which sequences advance, and keeps the scheduler of who holds which blocks.
//!
//! Invariant: the scheduler always shows the state after all steps in flight, as if their samples had arrived; so planning
//! past a step in flight is planning. A block in use by a step in flight is not handed out until that step is
//! committed.

mod apply;
mod audit;
mod batch;
mod bisect;
mod clock;
mod commit;
mod fair;
mod fcfs;
mod free_blocks;
mod lookup;
mod plan_builder;
mod prefill_budget;
mod queue;
mod recovery;
mod sessions;
mod split;
mod storage;
mod swap;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use omnibus_kv::BlockTable;

use crate::kv_cache::KvCacheManager;
use crate::prefix::BlockHashes;
use crate::request::LookupContext;
use crate::sequence::{Hold, OffloadState, Phase, Rank, Sequence, SequenceCache, Stage};
use crate::{
    CachedBlock, CostModel, Event, Failure, FinishReason, Plan, PlanId, PreemptionMode, Rejection, Request,
    Schedule, SequenceId, Settings, Stats, StepLimits, StepLoad, Tick, Token,
};
use clock::{Clock, StepTimes};
use lookup::FirstBlocks;
use plan_builder::PlanBuilder;
use queue::AnswerLengths;
use recovery::Recovery;
use sessions::Sessions;
pub use swap::OffloadTier;
use waiting::WaitingQueue;

/// Plans with work that may be in flight at once: one computes while the next is built.
const IN_FLIGHT_MAX: usize = 2;
/// States kept of one prompt: each costs a slot, and a step that ends there.
const CHECKPOINTS_MAX: usize = 4;

/// Decides which sequences advance, and in which blocks.
#[derive(Debug, Clone)]
pub struct Scheduler {
    settings: Settings,
    kv_cache: KvCacheManager,
    sequences: BTreeMap<SequenceId, Box<Sequence>>,
    waiting: WaitingQueue,
    /// Of sequences that have not ended.
    deadlines: BTreeSet<(Tick, SequenceId)>,
    running: BTreeSet<SequenceId>,
    /// Preempted or ended, and still used by a step in flight.
    releasing: BTreeSet<SequenceId>,
    steps: VecDeque<InFlightStep>,
    recovery: Recovery,
    first_blocks: FirstBlocks,
    cost: CostModel,
    clock: Clock,
    answer_lengths: AnswerLengths,
    /// The last sequence of the newest batch, under `static`.
    batch: Option<SequenceId>,
    /// The stage of the next step, under `split`.
    next_stage: Stage,
    sessions: Sessions,
    /// To be offloaded with the next plan.
    swaps: Vec<CachedBlock>,
    /// The latest time that was passed in.
    latest: Tick,
    /// Changes with every change of state.
    version: PlanId,
    next_id: u64,
    totals: Stats,
}

/// A plan that was applied and not committed.
#[derive(Debug, Clone)]
struct InFlightStep {
    id: PlanId,
    tokens: usize,
    load: StepLoad,
    times: StepTimes,
    works: Vec<InFlightSequence>,
}

impl InFlightStep {
    fn sequences(&self) -> impl Iterator<Item = SequenceId> {
        self.works.iter().map(|work| work.sequence)
    }
}

#[derive(Debug, Clone)]
struct InFlightSequence {
    sequence: SequenceId,
    /// One past the last position, draft tokens included.
    end: usize,
    samples: usize,
}

impl Scheduler {
    /// A scheduler with nothing to do. Panics on settings that could never run anything.
    pub fn new(settings: Settings) -> Self {
        settings.check();
        let (sequences, waiting, running, releasing, steps, deadlines) = Default::default();
        Self {
            kv_cache: KvCacheManager::new(&settings),
            recovery: Recovery::new(settings.limits(), settings.block_size),
            cost: CostModel::default(),
            clock: Clock::default(),
            answer_lengths: AnswerLengths::default(),
            batch: None,
            next_stage: Stage::Prefill,
            settings,
            first_blocks: FirstBlocks::default(),
            sessions: Sessions::default(),
            swaps: Vec::new(),
            latest: 0,
            sequences,
            waiting,
            deadlines,
            running,
            releasing,
            steps,
            version: PlanId(0),
            next_id: 0,
            totals: Stats::default(),
        }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The longest sequence that can be taken, in tokens, prompt and answer together.
    pub fn max_sequence_tokens(&self) -> usize {
        self.kv_cache.longest().min(self.settings.max_context)
    }

    /// Queues a request. Refuses what could not run even alone; that is what makes progress certain: the oldest
    /// sequence can always have all kv_cache.
    pub fn submit(&mut self, now: Tick, request: Request) -> Result<SequenceId, Rejection> {
        if request.prompt.is_empty() || request.max_new_tokens == 0 {
            return Err(Rejection::Empty);
        }
        let (needed, total) = (request.max_tokens(), self.max_sequence_tokens());
        if needed > total {
            return Err(Rejection::TooLong { needed, total });
        }
        self.find_room(request.tenant)?;
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        self.version.0 += 1;
        self.latest = self.latest.max(now);
        self.expire_sessions();
        self.use_session(request.session);
        let rank = Rank::new(self.clock.arrive(now), request.priority, id);
        let sequence = Box::new(self.sequence_of(request, rank, now));
        self.waiting.push(&sequence);
        self.deadlines.extend(sequence.deadline.map(|deadline| (deadline, id)));
        self.sequences.insert(id, sequence);
        Ok(id)
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
    /// It is empty while two steps are in flight.
    pub fn plan(&self, now: Tick) -> Plan {
        let mut builder = PlanBuilder::new(self, now);
        if self.steps.len() < IN_FLIGHT_MAX {
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
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
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
        let steps = std::mem::take(&mut self.steps);
        self.start_over();
        let faulty = self.recovery.failed(&steps, |id| self.sequences.contains_key(&id));
        let failed = |sequence| Event::Failed { sequence, failure: Failure::Step };
        faulty.and_then(|id| self.end(id, failed(id))).into_iter().collect()
    }

    /// How many draft tokens the next decode steps of a sequence verify, as far as there are tokens, blocks and state slots
    /// that no other sequence needs. A sequence with draft tokens is in one step at a time once it decodes, since the
    /// next drafts follow from what is accepted. Nothing happens to one that is not there.
    pub fn set_draft_tokens(&mut self, id: SequenceId, draft_tokens: usize) {
        if let Some(sequence) = self.sequences.get_mut(&id).filter(|of| of.draft_tokens != draft_tokens) {
            sequence.draft_tokens = draft_tokens;
            self.version.0 += 1;
        }
    }

    /// The most the next step may do; less than the settings say after a failed step, for a while.
    pub fn limits(&self) -> StepLimits {
        self.recovery.limits()
    }

    /// The blocks of a sequence in a group, as of the last `begin`. Panics if the sequence is not there.
    pub fn block_table(&self, id: SequenceId, group: usize) -> &BlockTable {
        &self.sequence(id).cache.tables[group]
    }

    /// Prompt, then everything sampled so far. Panics if the sequence is not there. A sequence is there until its
    /// last event, and in any case until the last plan that holds it is committed.
    pub fn tokens(&self, id: SequenceId) -> &[Token] {
        &self.sequence(id).tokens
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

    /// Numbers for people and for `/metrics`.
    pub fn stats(&self) -> Stats {
        Stats {
            queued: self.waiting.len(),
            running: self.running.len() + self.releasing.len(),
            suspects: self.recovery.suspects(),
            sessions: self.sessions.len(),
            groups: self.kv_cache.stats(),
            ..self.totals.clone()
        }
    }

    fn sequence_of(&self, request: Request, rank: Rank, arrived: Tick) -> Sequence {
        let mut hashes = BlockHashes::new(&request, self.settings.block_size);
        let checkpoints = match self.settings.keeps_states() {
            true => checkpoints(&request, self.settings.block_size),
            false => Vec::new(),
        };
        if self.kv_cache.shares() {
            hashes.extend(&request.prompt);
        }
        Sequence {
            session: request.session,
            lookup: Some(LookupContext { salt: request.cache_salt, history: request.history.clone() }),
            max_tokens: request.max_tokens(),
            prompt: request.prompt.len(),
            arrived,
            stage: Stage::Prefill,
            rank,
            tenant: request.tenant,
            token_at: 0,
            tokens: request.prompt,
            deadline: request.deadline,
            phase: Phase::Waiting,
            computed: 0,
            cache: SequenceCache {
                tables: self.kv_cache.empty_tables(),
                hashes,
                checkpoints,
                cached_blocks: 0,
            },
            is_complete: false,
            offload: OffloadState { hold: Hold::Never, mode: PreemptionMode::Recompute, is_looked_up: false },
            draft_tokens: request.draft_tokens,
            in_flight: Default::default(),
        }
    }

    fn sequence(&self, id: SequenceId) -> &Sequence {
        let sequence = self.sequences.get(&id);
        assert!(sequence.is_some(), "{id:?} is not there");
        &self.sequences[&id]
    }

    /// TransferCosts a sequence to a phase, and to the set that goes with it.
    fn enter(&mut self, id: SequenceId, phase: Phase) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let before = std::mem::replace(&mut sequence.phase, phase);
        let sequence = &self.sequences[&id];
        leave_set(&mut self.waiting, &mut [&mut self.running, &mut self.releasing], sequence, before);
        match phase {
            Phase::Waiting => self.waiting.push(sequence),
            Phase::Running => {
                self.waiting.start(sequence.tenant);
                self.running.insert(id);
            }
            Phase::Preempted | Phase::Ended => {
                self.waiting.start(sequence.tenant);
                self.releasing.insert(id);
            }
        }
    }

    /// Ends a sequence unless it has ended. What a step in flight uses stays until that is committed.
    fn end(&mut self, id: SequenceId, event: Event) -> Option<Event> {
        let sequence = self.sequences.get(&id).filter(|sequence| sequence.phase != Phase::Ended)?;
        self.version.0 += 1;
        self.recovery.forget(id);
        let deadline = sequence.deadline;
        let is_in_flight = sequence.is_in_flight();
        deadline.map(|deadline| self.deadlines.remove(&(deadline, id)));
        match is_in_flight {
            true => self.enter(id, Phase::Ended),
            false => self.remove(id),
        }
        Some(event)
    }

    /// Sends a sequence back to wait. What a step in flight uses stays until that is committed.
    fn preempt(&mut self, id: SequenceId, leaving: PreemptionMode) {
        self.totals.preemptions_total += 1;
        match leaving {
            PreemptionMode::Swap => self.totals.swap_preemptions_total += 1,
            PreemptionMode::Recompute => self.cost.transfers.doubt(),
        }
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.offload.mode = leaving;
        }
        match self.sequence(id).is_in_flight() {
            true => self.enter(id, Phase::Preempted),
            false => self.wait(id),
        }
    }

    /// Releases everything a sequence holds and lets it wait.
    fn wait(&mut self, id: SequenceId) {
        self.note_swaps(id);
        if let Some(sequence) = self.sequences.get_mut(&id) {
            self.kv_cache.release(&mut sequence.cache.tables);
            sequence.offload.is_looked_up = false;
            sequence.computed = 0;
            sequence.stage = Stage::Prefill;
        }
        self.enter(id, Phase::Waiting);
    }

    fn remove(&mut self, id: SequenceId) {
        if let Some(mut sequence) = self.sequences.remove(&id) {
            self.remember(&sequence);
            self.kv_cache.release(&mut sequence.cache.tables);
            leave_set(
                &mut self.waiting,
                &mut [&mut self.running, &mut self.releasing],
                &sequence,
                sequence.phase,
            );
        }
    }

    /// Releases all blocks. Sequences that have ended are removed; the others wait.
    fn start_over(&mut self) {
        self.kv_cache.reset();
        self.sessions.clear();
        self.swaps.clear();
        self.sequences.retain(|_, sequence| sequence.phase != Phase::Ended);
        for sequence in self.sequences.values_mut() {
            sequence.phase = Phase::Waiting;
            sequence.cache.tables = self.kv_cache.empty_tables();
            sequence.in_flight.clear();
            sequence.offload.is_looked_up = false;
            sequence.computed = 0;
            sequence.stage = Stage::Prefill;
        }
        self.waiting.clear();
        self.sequences.values().for_each(|sequence| self.waiting.push(sequence));
        self.running.clear();
        self.releasing.clear();
    }
}

/// Removes a sequence from the set of its phase.
fn leave_set(
    waiting: &mut WaitingQueue,
    others: &mut [&mut BTreeSet<SequenceId>; 2],
    sequence: &Sequence,
    phase: Phase,
) {
    match phase {
        Phase::Waiting => waiting.remove(sequence),
        Phase::Running | Phase::Preempted | Phase::Ended => {
            waiting.stop(sequence.tenant);
            others.iter_mut().for_each(|set| {
                set.remove(&sequence.id());
            });
        }
    }
}

/// Where a prompt's state is kept: the ends of the blocks before its last messages end, and before it ends itself. A
/// token is always left to compute.
fn checkpoints(request: &Request, block_size: usize) -> Vec<usize> {
    let last = request.prompt.len() - 1;
    let ends = request.boundaries.iter().copied().chain([last]);
    let ends: BTreeSet<usize> = ends.map(|end| end.min(last) / block_size * block_size).collect();
    let ends: Vec<usize> = ends.into_iter().filter(|end| *end > 0).collect();
    ends[ends.len().saturating_sub(CHECKPOINTS_MAX)..].to_vec()
}
