//! A simulated device: it computes nothing, and records what was written where.
//!
//! It runs a step's memory accesses at launch and returns its samples when the step is read; so accesses that conflict
//! with a step in flight are found at launch.

use std::collections::{BTreeSet, VecDeque};

use omnibus_kv::{BlockId, BlockTable, CacheKind};

use super::clients::Clients;
use super::script::Script;
use crate::outcome::SequenceOutput;
use crate::plan::{BlockCopy, Plan, PlanId, ScheduledSequence, TokenSource};
use crate::request::{SequenceId, Tick};
use crate::scheduler::Scheduler;
use crate::settings::Settings;

/// Content that no step may read.
const GARBAGE: u64 = 0;

/// A simulated device.
#[derive(Debug)]
pub(super) struct Device {
    block_size: usize,
    groups: Vec<GroupMemory>,
    jobs: VecDeque<Job>,
    launched: u64,
}

/// The memory of one layer group.
#[derive(Debug)]
struct GroupMemory {
    kind: CacheKind,
    /// For each slot, what was written last.
    slots: Vec<u64>,
    /// For each block and each of the last two launches: the launch, and the sequence that used it.
    users: Vec<[(u64, User); 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    One(SequenceId),
    Several,
}

/// A step in flight.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) plan: PlanId,
    /// When it is done.
    pub(super) done: Tick,
    /// How long it kept the device busy.
    pub(super) took: Tick,
    /// Which sequences are in it.
    pub(super) sequences: Vec<SequenceId>,
    pub(super) tokens: usize,
    samples: Vec<Sample>,
}

/// What a step yields for a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    sequence: SequenceId,
    /// Where its first token belongs.
    position: usize,
    result: RowResult,
}

/// The result of a sequence in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowResult {
    /// The number of accepted tokens.
    Good(usize),
    Bad,
    /// The sequence got the token another way meanwhile.
    Superseded,
}

impl RowResult {
    /// Positions with tokens of the sequence: not those of rejected draft tokens.
    fn valid_end(self, scheduled: &ScheduledSequence) -> usize {
        match self {
            Self::Good(accepted) => scheduled.positions.end - (scheduled.samples - accepted),
            Self::Bad | Self::Superseded => scheduled.positions.end,
        }
    }
}

impl Device {
    /// Memory with garbage.
    pub(super) fn new(settings: &Settings) -> Self {
        let group = |group: &crate::settings::CacheGroup| GroupMemory {
            kind: group.kind(),
            slots: vec![GARBAGE; group.blocks as usize * settings.block_size],
            users: vec![[(0, User::Several); 2]; group.blocks as usize],
        };
        let groups = settings.groups.iter().map(group).collect();
        Self { block_size: settings.block_size, groups, jobs: VecDeque::new(), launched: 0 }
    }

    /// Steps in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.jobs.len()
    }

    /// When the last step launched is done.
    pub(super) fn free_at(&self) -> Tick {
        self.jobs.back().map_or(0, |job| job.done)
    }

    /// Runs a plan that was just applied. `results`: one for each scheduled sequence.
    pub(super) fn launch(
        &mut self,
        scheduler: &Scheduler,
        plan: &Plan,
        results: &[RowResult],
        (done, took): (Tick, Tick),
        scripts: impl Fn(SequenceId) -> usize,
        all: &[Script],
    ) {
        self.launched += 1;
        for scheduled in &plan.scheduled {
            self.check_input(scheduler, scheduled, &all[scripts(scheduled.sequence)]);
            self.mark(scheduler, scheduled);
        }
        let doomed: BTreeSet<SequenceId> = self.doomed().collect();
        for (scheduled, result) in plan.scheduled.iter().zip(results) {
            let spoilt = *result == RowResult::Bad || doomed.contains(&scheduled.sequence);
            let valid_end = if spoilt { 0 } else { result.valid_end(scheduled) };
            self.write(scheduler, scheduled, &all[scripts(scheduled.sequence)], valid_end);
        }
        for (scheduled, result) in plan.scheduled.iter().zip(results) {
            if *result != RowResult::Bad && !doomed.contains(&scheduled.sequence) {
                self.read(
                    scheduler,
                    scheduled,
                    &all[scripts(scheduled.sequence)],
                    result.valid_end(scheduled),
                );
            }
        }
        let sampling = plan.scheduled.iter().zip(results).filter(|(scheduled, _)| scheduled.samples > 0);
        self.jobs.push_back(Job {
            plan: plan.id,
            done,
            took,
            sequences: plan.scheduled.iter().map(|scheduled| scheduled.sequence).collect(),
            tokens: plan.tokens(),
            samples: sampling
                .map(|(scheduled, result)| Sample {
                    sequence: scheduled.sequence,
                    position: scheduled.positions.end - scheduled.draft_tokens(),
                    result: *result,
                })
                .collect(),
        });
    }

    /// Copies blocks, all at once.
    pub(super) fn copy(&mut self, copies: &[BlockCopy]) {
        let read: BTreeSet<_> = copies.iter().map(|copy| (copy.group, copy.from)).collect();
        let written: BTreeSet<_> = copies.iter().map(|copy| (copy.group, copy.to)).collect();
        assert_eq!(written.len(), copies.len(), "a block is written twice");
        assert!(read.is_disjoint(&written), "a block is both read and written");
        let content: Vec<_> = copies.iter().map(|copy| self.block(copy.group, copy.from)).collect();
        for (copy, content) in copies.iter().zip(content) {
            self.fill(copy.group, copy.to, &content);
        }
    }

    /// What a block holds.
    pub(super) fn block(&self, group: usize, block: BlockId) -> Vec<u64> {
        let start = block.0 as usize * self.block_size;
        self.groups[group].slots[start..start + self.block_size].to_vec()
    }

    /// Writes a whole block from outside. No step in flight may use it.
    pub(super) fn fill(&mut self, group: usize, block: BlockId, contents: &[u64]) {
        let oldest = self.launched - self.jobs.len() as u64;
        let group = &mut self.groups[group];
        let used = group.users[block.0 as usize].iter().any(|(launch, _)| *launch > oldest);
        assert!(!used, "{block:?} is written while a step in flight uses it");
        let start = block.0 as usize * self.block_size;
        group.slots[start..start + self.block_size].copy_from_slice(contents);
    }

    /// A sequence was forced: its good samples in flight are dropped.
    pub(super) fn supersede(&mut self, sequence: SequenceId) {
        let samples = self.jobs.iter_mut().flat_map(|job| &mut job.samples);
        for sample in samples.filter(|sample| sample.sequence == sequence) {
            if sample.result != RowResult::Bad {
                sample.result = RowResult::Superseded;
            }
        }
    }

    /// The oldest step is done.
    pub(super) fn finish(&mut self) -> Job {
        let Some(job) = self.jobs.pop_front() else { panic!("no step is in flight") };
        job
    }

    /// All memory is lost.
    pub(super) fn crash(&mut self) {
        self.jobs.clear();
        self.groups.iter_mut().for_each(|group| group.slots.fill(GARBAGE));
    }

    /// Sequences with a failing row in flight: what they compute after it is discarded.
    fn doomed(&self) -> impl Iterator<Item = SequenceId> {
        let samples = self.jobs.iter().flat_map(|job| &job.samples);
        samples.filter(|sample| sample.result == RowResult::Bad).map(|sample| sample.sequence)
    }

    /// The input tokens are known, or are the right sample of the right step in flight.
    fn check_input(&self, scheduler: &Scheduler, scheduled: &ScheduledSequence, script: &Script) {
        let known = scheduler.tokens(scheduled.sequence);
        assert_eq!(known, &script.tokens[..known.len()], "the scheduler lost a token");
        match scheduled.input {
            TokenSource::Known => {
                assert!(
                    scheduled.positions.end - scheduled.draft_tokens() <= known.len(),
                    "a token is not known"
                );
                assert!(
                    scheduled.samples < 2 || scheduled.positions.start + 1 == known.len(),
                    "drafts follow the newest"
                );
            }
            TokenSource::InFlight { plan, row } => {
                assert_eq!(scheduled.positions, known.len()..known.len() + 1, "one token is in flight");
                let job = self.jobs.iter().find(|job| job.plan == plan);
                let sample = job.map(|job| job.samples[row]);
                let sample = sample.map(|sample| (sample.sequence, sample.position));
                assert_eq!(sample, Some((scheduled.sequence, known.len())), "another sequence's sample");
            }
        }
    }

    /// Notes which blocks the sequence uses, in this launch.
    fn mark(&mut self, scheduler: &Scheduler, scheduled: &ScheduledSequence) {
        let launch = self.launched;
        for (at, group) in self.groups.iter_mut().enumerate() {
            let table = scheduler.block_table(scheduled.sequence, at);
            let first = group.first_read(scheduled) / self.block_size;
            let end = table.freed_blocks + table.blocks.len();
            let kept = group.kept().div_ceil(self.block_size).min(first);
            let used: Vec<BlockId> = match group.kind {
                CacheKind::State => table.blocks.to_vec(),
                CacheKind::Full
                | CacheKind::Latent
                | CacheKind::SlidingWindow { .. }
                | CacheKind::UnquantizedPrefix { .. } => {
                    (0..kept).chain(first..end).map(|at| held(table, at)).collect()
                }
            };
            for block in used {
                let user = &mut group.users[block.0 as usize][launch as usize % 2];
                *user = match *user {
                    (then, _) if then == launch => (launch, User::Several),
                    _ => (launch, User::One(scheduled.sequence)),
                };
            }
        }
    }

    fn write(
        &mut self,
        scheduler: &Scheduler,
        scheduled: &ScheduledSequence,
        script: &Script,
        valid_end: usize,
    ) {
        let oldest = self.launched - self.jobs.len() as u64;
        for (at, group) in self.groups.iter_mut().enumerate() {
            let table = scheduler.block_table(scheduled.sequence, at);
            if group.kind == CacheKind::State {
                assert_eq!(table.blocks.len(), scheduled.samples.max(1), "a slot for each sample");
                let before = scheduled.positions.start.checked_sub(1).map(|last| script.contents[last]);
                let own = group.slots[table.blocks[0].index() * self.block_size];
                let spoilt = valid_end <= scheduled.positions.start;
                assert!(spoilt || before.is_none_or(|before| before == own), "the state is another's");
                // The state after the first sampled position, after the second, and so on.
                for (slot, last) in table.blocks.iter().zip(scheduled.positions.end - table.blocks.len()..) {
                    group.claim(*slot, scheduled.sequence, oldest);
                    let content = if last < valid_end { script.contents[last] } else { GARBAGE };
                    group.slots[slot.index() * self.block_size] = content;
                }
                continue;
            }
            // Content that is never read is arbitrary, but equal in every copy of a block.
            let end = group.end(scheduled).next_multiple_of(self.block_size).min(scheduled.positions.end);
            for position in scheduled.positions.start..end {
                let block = held(table, position / self.block_size);
                group.claim(block, scheduled.sequence, oldest);
                let content = if position < valid_end { script.contents[position] } else { GARBAGE };
                group.slots[block.0 as usize * self.block_size + position % self.block_size] = content;
            }
        }
    }

    /// Everything the sequence attends to was written by itself or by one with the same prefix.
    fn read(&self, scheduler: &Scheduler, scheduled: &ScheduledSequence, script: &Script, valid_end: usize) {
        for (at, group) in self.groups.iter().enumerate() {
            let table = scheduler.block_table(scheduled.sequence, at);
            if group.kind == CacheKind::State {
                continue;
            }
            let first = group.first_read(scheduled);
            for position in (0..group.kept().min(first)).chain(first..group.end(scheduled).min(valid_end)) {
                let (block, content) = (held(table, position / self.block_size), &script.contents[position]);
                let slot = group.slots[block.0 as usize * self.block_size + position % self.block_size];
                assert_eq!(
                    slot, *content,
                    "{:?} reads what is not its own at {position}",
                    scheduled.sequence
                );
            }
        }
    }
}

/// Panics if the logical block is not held.
fn held(table: &BlockTable, at: usize) -> BlockId {
    let block = table.block(at);
    assert!(block.is_some(), "block {at} of a sequence is needed and not held");
    block.unwrap_or(BlockId(0))
}

impl GroupMemory {
    /// First positions of a sequence that all its tokens attend to.
    fn kept(&self) -> usize {
        match self.kind {
            CacheKind::SlidingWindow { sinks, .. } => sinks,
            CacheKind::Full | CacheKind::Latent | CacheKind::UnquantizedPrefix { .. } | CacheKind::State => 0,
        }
    }

    /// The first position, the kept ones aside, that the sequence attends to.
    fn first_read(&self, scheduled: &ScheduledSequence) -> usize {
        match self.kind {
            CacheKind::UnquantizedPrefix { tokens } if scheduled.positions.start >= tokens => {
                scheduled.positions.start
            }
            CacheKind::Full | CacheKind::Latent | CacheKind::UnquantizedPrefix { .. } | CacheKind::State => 0,
            CacheKind::SlidingWindow { tokens, .. } => (scheduled.positions.start + 1).saturating_sub(tokens),
        }
    }

    /// The position after the last that the sequence attends to.
    fn end(&self, scheduled: &ScheduledSequence) -> usize {
        match self.kind {
            CacheKind::UnquantizedPrefix { tokens } => scheduled.positions.end.min(tokens),
            CacheKind::Full | CacheKind::Latent | CacheKind::SlidingWindow { .. } | CacheKind::State => {
                scheduled.positions.end
            }
        }
    }

    /// A block is written. No other sequence may use it, in any launch from `oldest` on.
    fn claim(&self, block: BlockId, writer: SequenceId, oldest: u64) {
        for (launch, user) in self.users[block.0 as usize] {
            let uninvolved = launch < oldest || user == User::One(writer);
            assert!(uninvolved, "{writer:?} writes {block:?}, which another uses in a step in flight");
        }
    }
}

impl Job {
    /// The content of a read.
    pub(super) fn outputs(&self, clients: &Clients, scripts: &[Script]) -> Vec<SequenceOutput> {
        let output = |sample: &Sample| {
            let script = &scripts[clients.script(sample.sequence)];
            match sample.result {
                RowResult::Good(accepted) => {
                    let positions = sample.position..sample.position + accepted;
                    let stop = script.stop(positions.end - 1);
                    SequenceOutput::Accepted { tokens: script.tokens[positions].into(), stop }
                }
                RowResult::Bad => SequenceOutput::Failed,
                RowResult::Superseded => SequenceOutput::Superseded,
            }
        };
        self.samples.iter().map(output).collect()
    }

    /// Sequences with a failed row.
    pub(super) fn failed_rows(&self) -> impl Iterator<Item = SequenceId> {
        let failed = self.samples.iter().filter(|sample| sample.result == RowResult::Bad);
        failed.map(|sample| sample.sequence)
    }
}
