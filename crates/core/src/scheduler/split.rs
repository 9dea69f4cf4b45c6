//! `split`: a pool of sequences that read their prompts, a pool of sequences that are answered, and steps that do the
//! one or the other, in turns.
//!
//! A sequence changes pools when its prompt is read: [`crate::Plan::handoff`] says so. Its keys and values stay in
//! their blocks, and the block table is what is handed over. With pools on two devices this is where blocks would be
//! copied; nothing else would change, because no step computes for both.
//!
//! Invariant: age decides within a pool, and about memory in both. The oldest sequence of all is handed over even when
//! the other pool is full, so it always advances in one step of two.

use std::collections::VecDeque;

use super::draft::{Admission, Draft, Move};
use super::{Scheduler, fcfs};
use crate::sequence::{Pool, Sequence};
use crate::{Plan, SequenceId};

/// Plans a step of the pool whose turn it is.
pub(super) fn fill(draft: &mut Draft<'_>) {
    handoff(draft);
    let turn = draft.books.next_pool;
    fill_pool(draft, turn);
    if draft.is_empty() && !draft.preempts() {
        fill_pool(draft, other(turn));
    }
}

fn other(pool: Pool) -> Pool {
    match pool {
        Pool::Prefill => Pool::Decode,
        Pool::Decode => Pool::Prefill,
    }
}

impl Scheduler {
    /// Whose turn it is after a plan. It stays a pool's as long as the oldest sequence of all is there and has no room:
    /// what becomes free is for it, not for those who begin in the other pool's turn.
    pub(super) fn pool_after(&self, plan: &Plan) -> Pool {
        let pool = |id: &SequenceId| self.sequences.get(id).map(|sequence| sequence.pool);
        let Some(stepped) = plan.scheduled.first().and_then(|work| pool(&work.sequence)) else {
            return self.next_pool;
        };
        let oldest = self.running.iter().find(|id| self.sequences[id].pending() > 0);
        let is_stuck = oldest.is_some_and(|id| {
            pool(id) == Some(stepped) && plan.scheduled.iter().all(|work| work.sequence != *id)
        });
        if is_stuck { stepped } else { other(stepped) }
    }
}

/// Which pool a sequence is in, once this plan is begun.
fn pool(draft: &Draft<'_>, id: SequenceId) -> Pool {
    if draft.hands_off(id) { Pool::Decode } else { draft.books.sequences[&id].pool }
}

/// TransferCosts those whose prompts are read, the oldest first, as long as there are places.
fn handoff(draft: &mut Draft<'_>) {
    let books = draft.books;
    let runners = draft.runners();
    let decoding = runners.iter().filter(|id| books.sequences[id].pool == Pool::Decode);
    let mut places = books.settings.tuning.stages.decode.saturating_sub(decoding.count());
    let oldest = oldest(draft);
    for id in runners {
        let sequence = &books.sequences[&id];
        if sequence.pool == Pool::Prefill && is_read(sequence) && (places > 0 || Some(id) == oldest) {
            draft.handoff(id);
            places = places.saturating_sub(1);
        }
    }
}

/// The oldest of those that run and those that may be planned.
fn oldest(draft: &Draft<'_>) -> Option<SequenceId> {
    draft.runners().front().copied().into_iter().chain(draft.queue().next()).min()
}

/// True when what is left to compute is the token sampled last.
fn is_read(sequence: &Sequence) -> bool {
    sequence.is_decoding() && sequence.answered() > 0
}

fn fill_pool(draft: &mut Draft<'_>, turn: Pool) {
    let books = draft.books;
    let mut rest = draft.runners();
    let mut works = 0;
    let most = match turn {
        Pool::Prefill => books.settings.tuning.stages.prefill,
        Pool::Decode => books.settings.tuning.stages.decode,
    };
    let mut admits = Admits::new(draft, turn);
    while !draft.is_spent() && works < most {
        let waiting = admits.next(rest.front().copied());
        let moved = match (waiting, rest.pop_front()) {
            (None, None) => return,
            (Some(next), runner) => {
                runner.into_iter().for_each(|runner| rest.push_front(runner));
                let moved = draft.admit(next, admits.admission(next), &mut rest);
                admits.note(moved, draft.preempts());
                moved
            }
            (None, Some(runner)) => {
                let sequence = &books.sequences[&runner];
                let is_its_turn = pool(draft, runner) == turn && (turn == Pool::Decode || !is_read(sequence));
                if !is_its_turn || sequence.pending() == 0 {
                    continue;
                }
                draft.advance(runner, &mut rest)
            }
        };
        works += usize::from(moved == Move::Made);
    }
}

/// Who may begin to read in this step.
struct Admits {
    queue: VecDeque<SequenceId>,
    oldest: Option<SequenceId>,
    /// Places left in the pool of those that read.
    places: usize,
    is_open: bool,
}

impl Admits {
    fn new(draft: &Draft<'_>, turn: Pool) -> Self {
        let books = draft.books;
        let runners = draft.runners();
        let reading = runners.iter().filter(|id| pool(draft, **id) == Pool::Prefill).count();
        let room = books.limits().sequences.saturating_sub(runners.len());
        Self {
            queue: draft.queue().collect(),
            oldest: oldest(draft),
            places: books.settings.tuning.stages.prefill.saturating_sub(reading).min(room),
            is_open: turn == Pool::Prefill && !fcfs::is_preempting(books),
        }
    }

    /// The next in the queue, if it may begin before the oldest of those left that run.
    fn next(&mut self, runner: Option<SequenceId>) -> Option<SequenceId> {
        let next = self.queue.front().copied()?;
        let is_oldest = self.oldest == Some(next);
        let may = self.is_open && (self.places > 0 || is_oldest) && runner.is_none_or(|runner| next < runner);
        if may { self.queue.pop_front() } else { None }
    }

    fn admission(&self, next: SequenceId) -> Admission {
        if self.oldest == Some(next) { Admission::Piece } else { Admission::Whole }
    }

    fn note(&mut self, moved: Move, preempts: bool) {
        self.is_open &= moved == Move::Made && !preempts;
        self.places = self.places.saturating_sub(1);
    }
}
