//! A plan in the making: what its step may still use, and the moves that policies make.
//!
//! Invariant: who goes first is the policy's affair; what fits is decided here.

use std::collections::VecDeque;

use omnibus_kv::CacheKind;

use super::Scheduler;
use super::forecast::Forecast;
use super::pace::Pace;
use crate::sequence::{Phase, Sequence};
use crate::{Plan, Preempted, ScheduledSequence, SequenceId, Tick};

/// A plan in the making.
pub(super) struct Draft<'a> {
    pub(super) books: &'a Scheduler,
    plan: Plan,
    forecast: Forecast<'a>,
    tokens_left: usize,
    sequences_left: usize,
    /// The most tokens that the next work may have.
    work_most: usize,
    /// Tokens that draft tokens may take: what is left when every running sequence has its next token.
    pub(super) drafts_left: usize,
    /// How much of the step prompts may take. `None`: as much as fits.
    pub(super) pace: Option<Pace<'a>>,
}

/// What came of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// The sequence is in the plan.
    Made,
    /// There is no memory for it in this step.
    Stuck,
}

/// What must fit before a sequence is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// One token. For those that have the memory to themselves.
    Piece,
    /// All of it and its next token; in a window group its first piece, as far as the window sees. Whoever starts
    /// beside others shall not soon be in their way.
    Whole,
}

impl<'a> Draft<'a> {
    /// Sequences whose deadline has passed are dealt with; nothing else is planned.
    pub(super) fn new(books: &'a Scheduler, now: Tick) -> Self {
        let limits = books.limits();
        let mut draft = Self {
            books,
            plan: Plan { id: books.now_at, at: now, ..Plan::default() },
            forecast: Forecast::new(&books.memory),
            tokens_left: limits.tokens,
            sequences_left: limits.sequences,
            work_most: usize::MAX,
            drafts_left: 0,
            pace: None,
        };
        for (&id, sequence) in &books.sequences {
            let late = sequence.deadline.is_some_and(|deadline| deadline <= now);
            if late && sequence.phase != Phase::Ended {
                draft.plan.expire.push(id);
                draft.let_go(sequence);
            }
        }
        let plannable = books.running.iter().filter(|id| books.sequences[id].pending() > 0).count();
        draft.drafts_left = draft.tokens_left.saturating_sub(plannable);
        draft
    }

    /// What was planned.
    pub(super) fn into_plan(self) -> Plan {
        self.plan
    }

    /// Sequences that hold blocks and will have more to compute, oldest first. Those that verify draft tokens, or wait for
    /// the token in flight that those follow, keep their place though they cannot be planned.
    pub(super) fn runners(&self) -> VecDeque<SequenceId> {
        let running = self.books.running.iter().copied();
        running.filter(|id| !self.is_expired(*id) && !self.books.sequences[id].is_finishing()).collect()
    }

    /// Sequences that wait and are not held, oldest first.
    pub(super) fn queue(&self) -> impl Iterator<Item = SequenceId> + use<'a> {
        let (books, expired) = (self.books, self.plan.expire.clone());
        let waiting = books.waiting.iter().copied().filter(|id| !books.sequences[id].is_held());
        waiting.filter(move |id| expired.binary_search(id).is_err())
    }

    /// True when the step can take no more.
    pub(super) fn is_spent(&self) -> bool {
        self.tokens_left == 0 || self.sequences_left == 0
    }

    /// Tokens that the step can still take.
    pub(super) fn tokens_left(&self) -> usize {
        self.tokens_left
    }

    /// True when the sequence is in the plan.
    pub(super) fn is_planned(&self, id: SequenceId) -> bool {
        self.plan.scheduled.iter().any(|work| work.sequence == id)
    }

    /// True when nothing is to be computed yet.
    pub(super) fn is_empty(&self) -> bool {
        self.plan.scheduled.is_empty()
    }

    /// Begins a batch with those up to `last`.
    pub(super) fn open_batch(&mut self, last: SequenceId) {
        self.plan.batch = Some(last);
    }

    /// TransferCosts a running sequence to the pool of those that are answered.
    pub(super) fn handoff(&mut self, id: SequenceId) {
        self.plan.handoff.push(id);
    }

    /// True when the plan moves the sequence there.
    pub(super) fn hands_off(&self, id: SequenceId) -> bool {
        self.plan.handoff.binary_search(&id).is_ok()
    }

    /// Lets no work planned in here have more than so many tokens.
    pub(super) fn within<T>(&mut self, most: usize, plan: impl FnOnce(&mut Self) -> T) -> T {
        self.work_most = most;
        let planned = plan(self);
        self.work_most = usize::MAX;
        planned
    }

    /// Sends a running sequence back to wait.
    pub(super) fn preempt(&mut self, victim: SequenceId) {
        let sequence = &self.books.sequences[&victim];
        self.plan.preempt.push(Preempted { sequence: victim, mode: self.books.leaving(sequence) });
        self.let_go(sequence);
    }

    /// True when the plan sends somebody back to wait.
    pub(super) fn preempts(&self) -> bool {
        !self.plan.preempt.is_empty()
    }

    /// Plans as much of a running sequence as fits: nothing while it verifies draft tokens. If nothing does, takes back from `victims`, last first.
    pub(super) fn advance(&mut self, id: SequenceId, victims: &mut VecDeque<SequenceId>) -> Move {
        let sequence = &self.books.sequences[&id];
        if sequence.awaits_verification() {
            return Move::Made;
        }
        let held = || sequence.tables.iter().map(|table| table.end());
        while self.reach(held()) <= sequence.computed {
            if self.make_room(held, sequence.computed, victims) == Move::Stuck {
                return Move::Stuck;
            }
        }
        self.give(id, sequence, sequence.computed, held);
        Move::Made
    }

    /// Plans the beginning of a waiting sequence, on top of what is found of it in the prefix index. If it does not
    /// fit, takes back from `victims`, last first.
    pub(super) fn admit(
        &mut self,
        id: SequenceId,
        admission: Admission,
        victims: &mut VecDeque<SequenceId>,
    ) -> Move {
        if self.forecast.is_full() && victims.is_empty() {
            return Move::Stuck;
        }
        let sequence = &self.books.sequences[&id];
        let memory = &self.books.memory;
        let keys = sequence.chain.keys();
        let found = memory.reusable(keys, (sequence.tokens.len() - 1) / memory.block_size());
        let found = if self.forecast.can_lend(&keys[..found]) { found } else { 0 };
        let start = found * memory.block_size();
        let held = || memory.groups().map(|(kind, _)| kind.shared_blocks(found));
        let before = self.forecast.clone();
        if let Some(partial) = memory.partial(&sequence.chain, &sequence.tokens, found) {
            let start = start + partial.tokens;
            self.forecast.adopt(&keys[..found], start);
            self.forecast.borrow(&partial);
            // Nobody makes room for a copy.
            if self.fits(sequence, start, held(), admission) {
                self.give(id, sequence, start, held);
                return Move::Made;
            }
            self.forecast = before.clone();
        }
        self.forecast.adopt(&keys[..found], start);
        while !self.fits(sequence, start, held(), admission) {
            if self.make_room(held, start, victims) == Move::Stuck {
                self.forecast = before;
                return Move::Stuck;
            }
        }
        self.give(id, sequence, start, held);
        Move::Made
    }

    /// Frees memory for one that can compute nothing. `Stuck`: there is nobody left to take from, or enough becomes
    /// free by itself when the step in flight is done.
    fn make_room<H: Iterator<Item = usize>>(
        &mut self,
        held: impl Fn() -> H,
        start: usize,
        victims: &mut VecDeque<SequenceId>,
    ) -> Move {
        let mut later = self.forecast.clone();
        later.add(&self.coming());
        if reach(&later, held()) > start {
            return Move::Stuck;
        }
        let Some(victim) = victims.pop_back() else { return Move::Stuck };
        self.preempt(victim);
        Move::Made
    }

    /// Counts on what a sequence holds, unless the step in flight uses it.
    fn let_go(&mut self, sequence: &Sequence) {
        if !sequence.is_in_flight() {
            self.forecast.release(&sequence.tables);
        }
    }

    fn give<H: Iterator<Item = usize>>(
        &mut self,
        id: SequenceId,
        sequence: &Sequence,
        start: usize,
        held: impl Fn() -> H,
    ) {
        let expected = sequence.expected();
        let drafts = self.drafts(sequence);
        let wanted = self.most(start, expected + drafts, drafts);
        let end = (start + wanted).min(self.reach(held()));
        // What is put off for the sake of a checkpoint is not given to younger ones, who would be in the way later.
        self.tokens_left -= end - start;
        let end = sequence.cut(start, end);
        let samples = (end + 1).saturating_sub(expected);
        let work = ScheduledSequence {
            sequence: id,
            positions: start..end,
            input: sequence.input(end - samples.saturating_sub(1)),
            cached: start - sequence.computed,
            samples,
        };
        self.forecast.take(held(), end, samples);
        self.drafts_left -= work.draft_tokens();
        if let Some(pace) = self.pace.as_mut().filter(|_| end - start > 1 && !work.is_decode()) {
            pace.take(start, end - start);
        }
        self.sequences_left -= 1;
        self.plan.scheduled.push(work);
    }

    /// Draft tokens that the sequence's next step may verify: memory and tokens that nobody else needs for the next one.
    fn drafts(&self, sequence: &Sequence) -> usize {
        let wanted = sequence.drafts().min(self.drafts_left);
        if wanted > 0 { wanted.min(self.forecast.free_state_slots()) } else { 0 }
    }

    /// The most tokens from `start` on that a work may have.
    fn most(&self, start: usize, end: usize, drafts: usize) -> usize {
        let most = self.tokens_left.min(self.work_most).min(end - start);
        let prompt = self.pace.as_ref().filter(|_| most > 1 && drafts == 0);
        prompt.map_or(most, |pace| pace.tokens(start, most).max(1))
    }

    fn fits(
        &self,
        sequence: &Sequence,
        start: usize,
        held: impl Iterator<Item = usize>,
        admission: Admission,
    ) -> bool {
        let len = sequence.tokens.len();
        let whole = (len + 1).min(sequence.max_tokens - 1);
        let needed = |kind| match (admission, kind) {
            (Admission::Piece, _) => start + 1,
            (Admission::Whole, CacheKind::SlidingWindow { tokens, .. }) => {
                len.min(start + self.tokens_left.min(tokens))
            }
            (Admission::Whole, CacheKind::UnquantizedPrefix { tokens }) => whole.min(tokens.max(start + 1)),
            (Admission::Whole, CacheKind::Full | CacheKind::Latent | CacheKind::State) => whole,
        };
        self.forecast.reaches(held).all(|(kind, reach)| reach >= needed(kind))
    }

    fn reach(&self, held: impl Iterator<Item = usize>) -> usize {
        reach(&self.forecast, held)
    }

    /// Blocks of each group that become available when the step in flight is done, whatever comes of it.
    fn coming(&self) -> Vec<usize> {
        let groups = &self.books.settings.groups;
        let mut coming = vec![0; groups.len()];
        for id in self.books.running.union(&self.books.leaving) {
            let sequence = &self.books.sequences[id];
            if !sequence.is_in_flight() {
                continue;
            }
            let leaves = sequence.phase != Phase::Running
                || sequence.is_finishing()
                || self.is_expired(*id)
                || self.plan.preempt.iter().any(|preempted| preempted.sequence == *id);
            for (at, table) in sequence.tables.iter().enumerate() {
                let behind =
                    table.out_of_window(groups[at].kind(), self.books.settings.block_size, sequence.computed);
                let gone = if leaves { 0..table.blocks.len() } else { behind };
                coming[at] += self.forecast.releasable(at, &table.blocks[gone]);
            }
        }
        coming
    }

    pub(super) fn is_expired(&self, id: SequenceId) -> bool {
        self.plan.expire.binary_search(&id).is_ok()
    }
}

fn reach(forecast: &Forecast<'_>, held: impl Iterator<Item = usize>) -> usize {
    forecast.reaches(held).map(|(_, reach)| reach).min().unwrap_or(0)
}
