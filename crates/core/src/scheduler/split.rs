//! `split`: a pool of sequences in prefill, a pool of sequences in decode, and steps that do the one or the other, in
//! turns.
//!
//! A sequence changes pools when its prompt is computed: [`crate::Plan::handoff`] says so. Its keys and values stay in
//! their blocks, and the block table is what is handed over. With pools on two devices this is where blocks would be
//! copied; nothing else would change, because no step computes for both.
//!
//! Invariant: age decides within a pool, and about memory in both. The oldest sequence of all is handed over even when
//! the other pool is full, so it always advances in one step of two.

use std::collections::VecDeque;
use std::iter::Peekable;

use super::plan_builder::{PlanBuilder, Reserve, Scheduled};
use super::sequences::Sequences;
use crate::plan::Plan;
use crate::request::SequenceId;
use crate::sequence::{Sequence, Stage};

/// Plans a step of the pool whose turn it is.
pub(super) fn fill(builder: &mut PlanBuilder<'_>) {
    let runners = builder.runners();
    handoff(builder, &runners);
    let turn = builder.scheduler.policy.next_stage;
    fill_stage(builder, &runners, turn);
    if builder.is_empty() && !builder.preempts() {
        fill_stage(builder, &runners, other(turn));
    }
}

fn other(stage: Stage) -> Stage {
    match stage {
        Stage::Prefill => Stage::Decode,
        Stage::Decode => Stage::Prefill,
    }
}

/// Whose turn it is after a plan of the stage `before`. It stays a pool's as long as the oldest sequence of all is there
/// and has no room: what becomes free is for it, not for sequences admitted in the other stage's turn.
pub(super) fn stage_after(plan: &Plan, sequences: &Sequences, before: Stage) -> Stage {
    let stage = |id| sequences.get(id).map(|sequence| sequence.stage);
    let Some(stepped) = plan.scheduled.first().and_then(|first| stage(first.sequence)) else {
        return before;
    };
    let is_planned = |sequence: &Sequence| plan.scheduled.iter().any(|part| part.sequence == sequence.id());
    // One that verifies draft tokens has nothing pending until its step is done, and may be in this one.
    let oldest = sequences.running().find(|sequence| sequence.pending() > 0 || is_planned(sequence));
    let is_stuck = oldest.is_some_and(|oldest| oldest.stage == stepped && !is_planned(oldest));
    if is_stuck { stepped } else { other(stepped) }
}

/// Which pool a sequence is in, once this plan is begun.
fn stage_of(builder: &PlanBuilder<'_>, sequence: &Sequence) -> Stage {
    if builder.hands_off(sequence.id()) { Stage::Decode } else { sequence.stage }
}

/// Hands off sequences whose prompts are computed, the oldest first, as long as there are places.
fn handoff<'a>(builder: &mut PlanBuilder<'a>, runners: &VecDeque<&'a Sequence>) {
    let scheduler = builder.scheduler;
    let decoding = runners.iter().filter(|sequence| sequence.stage == Stage::Decode);
    let mut places = scheduler.settings.tuning.stages.decode.saturating_sub(decoding.count());
    let oldest = oldest(builder, runners);
    for sequence in runners.iter().copied() {
        let may = places > 0 || Some(sequence.id()) == oldest;
        if sequence.stage == Stage::Prefill && is_prefilled(sequence) && may {
            builder.handoff(sequence.id());
            places = places.saturating_sub(1);
        }
    }
}

/// The oldest of those that run and those that may be planned.
fn oldest<'a>(builder: &PlanBuilder<'a>, runners: &VecDeque<&'a Sequence>) -> Option<SequenceId> {
    let runner = runners.front().copied();
    runner.into_iter().chain(builder.queue().next()).map(Sequence::id).min()
}

/// True when what is left to compute is the token sampled last.
fn is_prefilled(sequence: &Sequence) -> bool {
    sequence.is_decoding() && sequence.answered() > 0
}

fn fill_stage<'a>(builder: &mut PlanBuilder<'a>, runners: &VecDeque<&'a Sequence>, turn: Stage) {
    let scheduler = builder.scheduler;
    let mut rest = runners.clone();
    let mut planned = 0;
    let most = match turn {
        Stage::Prefill => scheduler.settings.tuning.stages.prefill,
        Stage::Decode => scheduler.settings.tuning.stages.decode,
    };
    let mut admits = Admits::new(builder, builder.queue(), runners, turn);
    while !builder.is_spent() && planned < most {
        let waiting = admits.next(rest.front().copied());
        let scheduled = match (waiting, rest.pop_front()) {
            (None, None) => return,
            (Some(next), runner) => {
                runner.into_iter().for_each(|runner| rest.push_front(runner));
                let scheduled = builder.admit(next, admits.reserve(next), &mut rest);
                admits.note(scheduled, builder.preempts());
                scheduled
            }
            (None, Some(runner)) => {
                let is_its_turn =
                    stage_of(builder, runner) == turn && (turn == Stage::Decode || !is_prefilled(runner));
                if !is_its_turn || runner.pending() == 0 {
                    continue;
                }
                builder.advance(runner, &mut rest)
            }
        };
        planned += usize::from(scheduled == Scheduled::Yes);
    }
}

/// Which waiting sequences may begin in this step.
struct Admits<Q: Iterator> {
    queue: Peekable<Q>,
    oldest: Option<SequenceId>,
    /// Places left in the prefill pool.
    places: usize,
    is_open: bool,
}

impl<'a, Q: Iterator<Item = &'a Sequence>> Admits<Q> {
    fn new(builder: &PlanBuilder<'a>, queue: Q, runners: &VecDeque<&'a Sequence>, turn: Stage) -> Self {
        let scheduler = builder.scheduler;
        let prefilling =
            runners.iter().filter(|sequence| stage_of(builder, sequence) == Stage::Prefill).count();
        let room = scheduler.limits().sequences.saturating_sub(runners.len());
        Self {
            queue: queue.peekable(),
            oldest: oldest(builder, runners),
            places: scheduler.settings.tuning.stages.prefill.saturating_sub(prefilling).min(room),
            is_open: turn == Stage::Prefill && !scheduler.sequences.is_preempting(),
        }
    }

    /// The next in the queue, if it may begin before the oldest of those left that run.
    fn next(&mut self, runner: Option<&Sequence>) -> Option<&'a Sequence> {
        let (is_open, places, oldest) = (self.is_open, self.places, self.oldest);
        self.queue.next_if(|next| {
            let is_oldest = oldest == Some(next.id());
            is_open && (places > 0 || is_oldest) && runner.is_none_or(|runner| next.id() < runner.id())
        })
    }

    fn reserve(&self, next: &Sequence) -> Reserve {
        if self.oldest == Some(next.id()) { Reserve::Chunk } else { Reserve::FullPrompt }
    }

    fn note(&mut self, scheduled: Scheduled, preempts: bool) {
        self.is_open &= scheduled == Scheduled::Yes && !preempts;
        self.places = self.places.saturating_sub(1);
    }
}
