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
use crate::request::{Class, SequenceId};
use crate::sequence::{Rank, Sequence};

/// The waiting queue.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingQueue {
    /// All waiting sequences, held ones included, oldest first.
    ids: BTreeSet<SequenceId>,
    /// Waiting sequences that may be planned, oldest first.
    ready: BTreeSet<SequenceId>,
    /// Waiting sequences that may be planned, by rank.
    ranks: BTreeSet<Rank>,
    /// Waiting sequences that are held, by rank.
    held: BTreeSet<Rank>,
    tenants: BTreeMap<u64, Tenant>,
    /// For each tenant with a sequence that may be planned: when its first one has its turn.
    turns: BTreeSet<Turn>,
    /// Sequences of each class.
    classes: [ClassCount; Class::COUNT],
    /// Of online sequences.
    load: QueuedLoad,
}

/// The sequences of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ClassCount {
    /// Waiting ones, held ones included.
    sequences: usize,
    /// Tenants with at least one that waits.
    tenants: usize,
    /// Sequences that run, or leave the running ones.
    holding: usize,
}

/// The sequences of one tenant.
#[derive(Debug, Clone, Default)]
struct Tenant {
    /// Waiting sequences of each class, held ones included.
    waiting: [usize; Class::COUNT],
    /// Sequences of each class that run, or leave the running ones.
    running: [usize; Class::COUNT],
    /// Its waiting sequences that may be planned.
    ranks: BTreeSet<Rank>,
}

/// When a sequence has its turn: by class; then after as many of its tenant's in that class, running or before it; then by
/// rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    class: Class,
    before: usize,
    rank: Rank,
    tenant: u64,
}

impl Tenant {
    /// The turn of a sequence after so many that a plan admits already.
    fn turn(&self, tenant: u64, rank: Rank, planned: usize) -> Turn {
        let class = rank.class;
        Turn { class, before: self.running[class as usize] + planned, rank, tenant }
    }

    /// The turn of its first sequence that may be planned.
    fn first_turn(&self, tenant: u64) -> Option<Turn> {
        self.ranks.first().map(|rank| self.turn(tenant, *rank, 0))
    }

    fn is_gone(&self) -> bool {
        [self.waiting, self.running].iter().flatten().all(|count| *count == 0)
    }
}

impl WaitingQueue {
    /// Waiting sequences.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Waiting sequences of a class.
    pub(super) fn count(&self, class: Class) -> usize {
        self.classes[class as usize].sequences
    }

    /// True when the sequence waits.
    pub(super) fn contains(&self, id: &SequenceId) -> bool {
        self.ids.contains(id)
    }

    /// What there is to compute of the online ones.
    pub(super) fn online_load(&self) -> &QueuedLoad {
        &self.load
    }

    /// All waiting sequences, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SequenceId> {
        self.ids.iter()
    }

    /// Waiting sequences that may be planned, oldest first.
    pub(super) fn ready(&self) -> impl Iterator<Item = SequenceId> + use<'_> {
        self.ready.iter().copied()
    }

    /// Waiting sequences that may be planned, by rank.
    pub(super) fn by_rank(&self) -> impl Iterator<Item = Rank> + use<'_> {
        self.ranks.iter().copied()
    }

    /// Whether an offline sequence waits, runs, or leaves the running ones.
    pub(super) fn has_offline(&self) -> bool {
        let ClassCount { sequences, holding, .. } = self.classes[Class::Offline as usize];
        sequences + holding > 0
    }

    /// Waiting sequences that may not be planned, by rank.
    pub(super) fn held(&self) -> impl Iterator<Item = Rank> + use<'_> {
        self.held.iter().copied()
    }

    /// Tenants with a waiting sequence of a class, and how many of those sequences are this tenant's.
    pub(super) fn share(&self, class: Class, tenant: u64) -> (usize, usize) {
        let own = self.tenants.get(&tenant).map_or(0, |tenant| tenant.waiting[class as usize]);
        (self.classes[class as usize].tenants, own)
    }

    /// Adds a waiting sequence.
    pub(super) fn push(&mut self, sequence: &Sequence) {
        self.ids.insert(sequence.rank.id);
        if sequence.class() == Class::Online {
            self.load.add(sequence);
        }
        let class = sequence.class() as usize;
        self.change(sequence.tenant, |tenant| tenant.waiting[class] += 1);
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
        if sequence.class() == Class::Online {
            self.load.remove(sequence);
        }
        let class = sequence.class() as usize;
        self.change(sequence.tenant, |tenant| tenant.waiting[class] -= 1);
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

    /// A sequence holds blocks.
    pub(super) fn start(&mut self, sequence: &Sequence) {
        let class = sequence.class() as usize;
        self.change(sequence.tenant, |tenant| tenant.running[class] += 1);
    }

    /// A sequence holds no blocks any more.
    pub(super) fn stop(&mut self, sequence: &Sequence) {
        let class = sequence.class() as usize;
        self.change(sequence.tenant, |tenant| tenant.running[class] -= 1);
    }

    /// Removes all sequences, running ones included.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sequences that may be planned, online ones first, in each class round robin: a tenant's next one comes when it has
    /// fewest running and before it.
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
            let planned = |first: Rank| usize::from(first.class == rank.class);
            order.successors.extend(first.map(|first| Reverse(tenant.turn(id, first, planned(first)))));
        }
        order
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Tenant)) {
        let tenant = self.tenants.entry(id).or_default();
        let (before, waited, ran) = (tenant.first_turn(id), tenant.waiting, tenant.running);
        change(tenant);
        let (after, waits, runs) = (tenant.first_turn(id), tenant.waiting, tenant.running);
        for (at, class) in self.classes.iter_mut().enumerate() {
            class.sequences = class.sequences + waits[at] - waited[at];
            class.tenants = class.tenants + usize::from(waits[at] > 0) - usize::from(waited[at] > 0);
            class.holding = class.holding + runs[at] - ran[at];
        }
        if tenant.is_gone() {
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
        for (index, class) in [Class::Online, Class::Offline].into_iter().enumerate() {
            let of_class = |of: &Tenant| of.waiting[index];
            let tenants = self.tenants.values().filter(|tenant| of_class(tenant) > 0).count();
            let sequences = waiting.iter().filter(|sequence| sequence.class() == class).count();
            assert_eq!(self.tenants.values().map(of_class).sum::<usize>(), sequences, "miscounted");
            let holding = self.tenants.values().map(|of| of.running[index]).sum();
            assert_eq!(self.classes[index], ClassCount { sequences, tenants, holding }, "miscounted");
        }
        assert_eq!(self.classes.iter().map(|of| of.holding).sum::<usize>(), running, "miscounted");
        let mut load = QueuedLoad::default();
        let online = waiting.iter().filter(|sequence| sequence.class() == Class::Online);
        online.for_each(|sequence| load.add(sequence));
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
        let turn_of = |rank: Rank| match rank.class == turn.class {
            true => Some(Turn { before: turn.before + 1, rank, ..turn }),
            false => Some(self.queue.tenants.get(&turn.tenant)?.turn(turn.tenant, rank, 0)),
        };
        let successor = next.and_then(turn_of).map(Reverse);
        self.successors.extend(successor);
        Some(turn.rank.id)
    }
}
