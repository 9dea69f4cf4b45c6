//! The waiting queue: waiting sequences by age, by rank, and by turn among tenants.
//!
//! Invariant: no operation looks at the whole queue. Every order that a policy needs is an index that changes with
//! one sequence at a time.

use std::cmp::Reverse;
use std::collections::btree_set;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::iter::Peekable;
use std::ops::Bound;

use super::queued_load::QueuedLoad;
use crate::SequenceId;
use crate::sequence::{Rank, Sequence};

/// The waiting queue.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingQueue {
    /// All waiting sequences, held ones included, oldest first.
    ids: BTreeSet<SequenceId>,
    /// Those that may be planned, oldest first.
    ready: BTreeSet<SequenceId>,
    /// Those that may be planned, by rank.
    ranks: BTreeSet<Rank>,
    /// Those that may not, by rank.
    held: BTreeSet<Rank>,
    tenants: BTreeMap<u64, Tenant>,
    /// For each tenant with a sequence that may be planned: when its first one has its turn.
    turns: BTreeSet<Turn>,
    /// Tenants with a waiting sequence.
    tenants_waiting: usize,
    load: QueuedLoad,
}

/// The sequences of one tenant.
#[derive(Debug, Clone, Default)]
struct Tenant {
    /// Waiting, held ones included.
    waiting: usize,
    /// Running, or leaving the running ones.
    running: usize,
    /// Those that may be planned.
    ranks: BTreeSet<Rank>,
}

/// When a sequence has its turn: after as many of its tenant's, running or before it; then by rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    before: usize,
    rank: Rank,
    tenant: u64,
}

impl WaitingQueue {
    /// Waiting sequences.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// True when no sequence waits.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// True when the sequence waits.
    pub(super) fn contains(&self, id: &SequenceId) -> bool {
        self.ids.contains(id)
    }

    /// What there is to compute of all.
    pub(super) fn load(&self) -> &QueuedLoad {
        &self.load
    }

    /// All waiting sequences, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SequenceId> {
        self.ids.iter()
    }

    /// Those that may be planned, oldest first.
    pub(super) fn ready(&self) -> impl Iterator<Item = SequenceId> + use<'_> {
        self.ready.iter().copied()
    }

    /// Those that may be planned, by rank.
    pub(super) fn by_rank(&self) -> impl Iterator<Item = Rank> + use<'_> {
        self.ranks.iter().copied()
    }

    /// Those that may not be planned, by rank.
    pub(super) fn held(&self) -> impl Iterator<Item = Rank> + use<'_> {
        self.held.iter().copied()
    }

    /// Tenants with a waiting sequence, and how many of them are this tenant's.
    pub(super) fn share(&self, tenant: u64) -> (usize, usize) {
        (self.tenants_waiting, self.tenants.get(&tenant).map_or(0, |tenant| tenant.waiting))
    }

    /// Adds a waiting sequence.
    pub(super) fn push(&mut self, sequence: &Sequence) {
        self.ids.insert(sequence.rank.id);
        self.load.add(sequence);
        self.change(sequence.tenant, |tenant| tenant.waiting += 1);
        match sequence.is_held() {
            true => self.hold(sequence),
            false => self.release(sequence),
        }
    }

    /// Removes a sequence that was admitted or has ended.
    pub(super) fn remove(&mut self, sequence: &Sequence) {
        self.hold(sequence);
        self.held.remove(&sequence.rank);
        self.ids.remove(&sequence.rank.id);
        self.load.remove(sequence);
        self.change(sequence.tenant, |tenant| tenant.waiting -= 1);
    }

    /// Keeps a waiting sequence from being planned.
    pub(super) fn hold(&mut self, sequence: &Sequence) {
        self.ready.remove(&sequence.rank.id);
        self.ranks.remove(&sequence.rank);
        self.held.insert(sequence.rank);
        self.change(sequence.tenant, |tenant| {
            tenant.ranks.remove(&sequence.rank);
        });
    }

    /// Lets a waiting sequence be planned.
    pub(super) fn release(&mut self, sequence: &Sequence) {
        self.held.remove(&sequence.rank);
        self.ready.insert(sequence.rank.id);
        self.ranks.insert(sequence.rank);
        self.change(sequence.tenant, |tenant| {
            tenant.ranks.insert(sequence.rank);
        });
    }

    /// One more sequence of this tenant holds blocks.
    pub(super) fn start(&mut self, tenant: u64) {
        self.change(tenant, |tenant| tenant.running += 1);
    }

    /// One sequence of this tenant holds no blocks any more.
    pub(super) fn stop(&mut self, tenant: u64) {
        self.change(tenant, |tenant| tenant.running -= 1);
    }

    /// Removes all sequences, running ones included.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sequences that may be planned, round robin: a tenant's next one comes when it has fewest running and before it.
    /// `planned`: one that the plan admits already.
    pub(super) fn round_robin(&self, planned: Option<&Sequence>) -> RoundRobin<'_> {
        let mut order = RoundRobin {
            queue: self,
            turns: self.turns.iter().peekable(),
            successors: BinaryHeap::new(),
            skipped: planned.map(|sequence| (sequence.tenant, sequence.rank)),
        };
        if let Some((id, rank)) = order.skipped
            && let Some(tenant) = self.tenants.get(&id)
        {
            let first = tenant.ranks.iter().find(|first| **first != rank).copied();
            let turn = first.map(|rank| Reverse(Turn { before: tenant.running + 1, rank, tenant: id }));
            order.successors.extend(turn);
        }
        order
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Tenant)) {
        let tenant = self.tenants.entry(id).or_default();
        let turn = |tenant: &Tenant| {
            let rank = tenant.ranks.first().copied()?;
            Some(Turn { before: tenant.running, rank, tenant: id })
        };
        let (before, waited) = (turn(tenant), tenant.waiting > 0);
        change(tenant);
        let (after, waits) = (turn(tenant), tenant.waiting > 0);
        self.tenants_waiting = self.tenants_waiting + usize::from(waits) - usize::from(waited);
        if tenant.waiting == 0 && tenant.running == 0 {
            self.tenants.remove(&id);
        }
        if before != after {
            before.map(|turn| self.turns.remove(&turn));
            self.turns.extend(after);
        }
    }

    /// Panics if the indices disagree. `waiting` and `running`: how many sequences there are.
    pub(super) fn audit<'a>(&self, sequences: impl Iterator<Item = &'a Sequence>, running: usize) {
        let waiting: Vec<&Sequence> = sequences.collect();
        let ready: BTreeSet<Rank> = waiting.iter().filter(|of| !of.is_held()).map(|of| of.rank).collect();
        assert_eq!(self.ids.len(), waiting.len(), "the queue has other sequences than wait");
        assert_eq!(self.ranks, ready, "other sequences may be planned than are not held");
        let held: BTreeSet<Rank> = waiting.iter().filter(|of| of.is_held()).map(|of| of.rank).collect();
        assert_eq!(self.held, held, "other sequences are listed as held than are");
        assert_eq!(self.ready, ready.iter().map(|rank| rank.id).collect(), "the queue's orders disagree");
        let of_tenants: usize = self.tenants.values().map(|tenant| tenant.ranks.len()).sum();
        assert_eq!(of_tenants, ready.len(), "a sequence is in no tenant's line");
        assert_eq!(self.tenants.values().map(|of| of.waiting).sum::<usize>(), waiting.len(), "miscounted");
        assert_eq!(self.tenants.values().map(|of| of.running).sum::<usize>(), running, "miscounted");
        let tenants_waiting = self.tenants.values().filter(|tenant| tenant.waiting > 0).count();
        assert_eq!(tenants_waiting, self.tenants_waiting, "miscounted");
        let mut load = QueuedLoad::default();
        waiting.iter().for_each(|sequence| load.add(sequence));
        assert_eq!(load, self.load, "the load of the queue is wrong");
        let lines = self.tenants.values().filter(|tenant| !tenant.ranks.is_empty()).count();
        assert_eq!(self.turns.len(), lines, "a tenant has no turn");
    }
}

/// Waiting sequences, round robin among tenants. Made as it is read.
pub(super) struct RoundRobin<'a> {
    queue: &'a WaitingQueue,
    turns: Peekable<btree_set::Iter<'a, Turn>>,
    /// The next turns of tenants that had one.
    successors: BinaryHeap<Reverse<Turn>>,
    /// The tenant whose turns are counted otherwise, and its sequence that is left out.
    skipped: Option<(u64, Rank)>,
}

impl Iterator for RoundRobin<'_> {
    type Item = SequenceId;

    fn next(&mut self) -> Option<SequenceId> {
        let skipped = self.skipped;
        while self.turns.next_if(|turn| skipped.is_some_and(|(tenant, _)| tenant == turn.tenant)).is_some() {}
        let Reverse(turn) = match (self.turns.peek(), self.successors.peek()) {
            (Some(first), Some(Reverse(successor))) if *first > successor => self.successors.pop()?,
            (Some(_), _) => Reverse(*self.turns.next()?),
            (None, _) => self.successors.pop()?,
        };
        let line = &self.queue.tenants.get(&turn.tenant)?.ranks;
        let behind = line.range((Bound::Excluded(turn.rank), Bound::Unbounded));
        let next = behind.copied().find(|rank| self.skipped.is_none_or(|(_, skipped)| skipped != *rank));
        let successor = next.map(|rank| Reverse(Turn { before: turn.before + 1, rank, ..turn }));
        self.successors.extend(successor);
        Some(turn.rank.id)
    }
}
