//! By slack, inside a time (FairBatching, arXiv 2510.14392): decodes that cannot wait, then prompts by slack, then the
//! other decodes.
//!
//! The slack of a sequence is the time left until its next token is due. Token `j` is due `ttft + tpot · j` after
//! arrival, and not later than `tpot` after the token before it, so that an answer ahead of its schedule does not
//! stutter either. A step takes no longer than the least slack among those being answered, which is what makes a long
//! prompt come in chunks; how long it will take, the cost model says.
//!
//! Invariant: the first in line (by [`Rank`]) advances in every step in which a sequence can, and may have the memory
//! of all others; nobody takes memory from one before it in line. So whoever waits long enough is the first.

use std::collections::{BTreeMap, VecDeque};

use super::plan_builder::{PlanBuilder, Reserve, Scheduled};
use super::prefill_budget::{LEAST_TOKENS, PrefillBudget, TimeBudget};
use super::{Scheduler, fcfs};
use crate::sequence::{Rank, Sequence};
use crate::{SequenceId, StepLoad, Tick};

/// From arrival to the first token, when nobody says.
const TTFT: f64 = 2e6;
/// From token to token at least, when nobody says.
const TPOT_MIN: f64 = 5e4;
/// From token to token, in steps that only decode, when nobody says.
const TPOT_STEPS: f64 = 4.0;
/// What is kept for the time between steps.
const HOST_SHARE: f64 = 0.12;
/// What is kept for others who use the machine: some steps take a fifth longer than any model of them says.
const GUEST_SHARE: f64 = 0.1;

/// Plans a step.
pub(super) fn fill(builder: &mut PlanBuilder<'_>, now: Tick) {
    let mut fair = Fair::new(builder, now);
    fair.first_in_line(builder);
    let (urgent, others) = fair.decodes_by_need();
    fair.decode(builder, &urgent, fair.kept_tokens);
    fair.read_prompts(builder);
    fair.decode(builder, &others, 0);
    fair.decode(builder, &urgent, 0);
}

/// What a step is made from.
struct Fair<'a> {
    scheduler: &'a Scheduler,
    /// When the step will begin, in microseconds.
    begins: f64,
    /// Between the tokens of an answer.
    tpot: f64,
    /// Runs with one token to compute, with its slack; the least first.
    decodes: Vec<(f64, SequenceId)>,
    /// Runs with more to compute, with its slack; the least first.
    prompts: VecDeque<(f64, SequenceId)>,
    /// Running and not in the plan, in line.
    rest: VecDeque<SequenceId>,
    /// Sequences that may begin to run.
    places_left: usize,
    /// Tokens that decodes leave to prompts in any case.
    kept_tokens: usize,
}

impl<'a> Fair<'a> {
    fn new(builder: &mut PlanBuilder<'a>, now: Tick) -> Self {
        let scheduler = builder.scheduler;
        let runners = builder.runners();
        let decoding = |id: &&SequenceId| scheduler.sequences[id].is_decoding();
        let load = runners.iter().filter(decoding);
        let load = load.map(|id| {
            let sequence = &scheduler.sequences[id];
            StepLoad::verify(sequence.computed, 1 + sequence.drafts())
        });
        let load = load.fold(StepLoad::default(), StepLoad::plus);
        let mut fair = Self {
            scheduler,
            begins: scheduler.clock.begins(now, &scheduler.steps) as f64,
            tpot: tpot(scheduler, &load),
            decodes: Vec::new(),
            prompts: VecDeque::new(),
            rest: in_line(scheduler, runners.iter().copied()),
            places_left: scheduler.limits().sequences.saturating_sub(runners.len()),
            kept_tokens: 0,
        };
        let with_slack = |id: &SequenceId| (fair.slack(&scheduler.sequences[id]), *id);
        let plannable = runners.iter().filter(|id| scheduler.sequences[id].pending() > 0);
        let (mut decodes, mut prompts): (Vec<_>, Vec<_>) =
            plannable.map(with_slack).partition(|(_, id)| scheduler.sequences[id].is_decoding());
        decodes.sort_by(by_slack);
        prompts.sort_by(by_slack);
        if !prompts.is_empty() || builder.queue().next().is_some() {
            fair.kept_tokens = builder.tokens_left() / 4;
            builder.drafts_left = builder.drafts_left.saturating_sub(fair.kept_tokens);
        }
        let budget = decodes.first().map(|(least, _)| fair.budget(*least));
        let tokens = builder.tokens_left().saturating_sub(decodes.len()).max(fair.kept_tokens);
        builder.prefill_budget = Some(PrefillBudget::new(&scheduler.cost, load, budget, tokens));
        (fair.decodes, fair.prompts) = (decodes, prompts.into());
        fair
    }

    /// Microseconds until the sequence's next token is due, counted from when the step begins.
    fn slack(&self, sequence: &Sequence) -> f64 {
        let ttft = self.scheduler.settings.tuning.targets.ttft.map_or(TTFT, |ttft| ttft as f64);
        let reading = self.scheduler.cost.predict(&StepLoad::prefill(0, sequence.prompt));
        let first = sequence.rank.came as f64 + ttft.max(2.0 * reading);
        let scheduled = first + self.tpot * sequence.answered() as f64;
        let is_answering = sequence.is_decoding() && sequence.answered() > 0;
        let due = if is_answering {
            // The token in flight comes when the step before this one ends. Time may have jumped back since the last.
            let last = if sequence.is_in_flight() { self.begins } else { sequence.token_at as f64 };
            scheduled.min(last.min(self.begins) + self.tpot)
        } else {
            scheduled
        };
        due - self.begins
    }

    /// What a step may take in which the least slack is this, in microseconds.
    fn budget(&self, least: f64) -> TimeBudget {
        let least = least.min(self.tpot);
        let doubt = self.scheduler.cost.doubt();
        TimeBudget {
            conservative_us: least / (1.0 + HOST_SHARE + GUEST_SHARE + doubt),
            expected_us: least / (1.0 + HOST_SHARE),
        }
    }

    /// The first in line comes first of all. A prompt that others are ahead of by slack gets little more than nothing.
    fn first_in_line(&mut self, builder: &mut PlanBuilder<'_>) {
        let scheduler = self.scheduler;
        let waiting = builder.queue().min_by_key(|id| scheduler.sequences[id].rank);
        let running = self.rest.front().copied();
        let in_line = |id: &SequenceId| scheduler.sequences[id].rank;
        if let Some(first) =
            waiting.filter(|id| running.is_none_or(|running| in_line(id) < in_line(&running)))
        {
            if fcfs::is_preempting(scheduler) {
                return;
            }
            if self.places_left == 0
                && let Some(last) = self.rest.pop_back()
            {
                builder.preempt(last);
                self.places_left += 1;
            }
            let most = self.most_of_first(builder, first);
            builder.within(most, |builder| self.admit(builder, first, Reserve::Chunk));
        } else if let Some(first) = running {
            let most = self.most_of_first(builder, first);
            builder.within(most, |builder| self.advance(builder, first));
        }
    }

    fn most_of_first(&self, builder: &PlanBuilder<'_>, first: SequenceId) -> usize {
        let own = self.slack(&self.scheduler.sequences[&first]);
        let waiting = builder.queue().map(|id| self.slack(&self.scheduler.sequences[&id]));
        let mut others = self.prompts.iter().map(|(slack, _)| *slack).chain(waiting);
        if others.any(|slack| slack < own) { LEAST_TOKENS } else { usize::MAX }
    }

    /// Those that cannot wait for the step after this one, and those that can.
    fn decodes_by_need(&self) -> (Vec<SequenceId>, Vec<SequenceId>) {
        let (urgent, others): (Vec<_>, Vec<_>) =
            self.decodes.iter().partition(|(slack, _)| *slack < 2.0 * self.tpot);
        let ids = |decodes: Vec<&(f64, SequenceId)>| decodes.iter().map(|(_, id)| *id).collect();
        (ids(urgent), ids(others))
    }

    /// Plans decodes, as long as more than `kept` tokens of the step are left.
    fn decode(&mut self, builder: &mut PlanBuilder<'_>, ids: &[SequenceId], kept: usize) {
        for id in ids {
            if builder.is_spent() || builder.tokens_left() <= kept {
                return;
            }
            self.advance(builder, *id);
        }
    }

    /// Prompts that have begun and those that wait, by slack, as long as there is time.
    fn read_prompts(&mut self, builder: &mut PlanBuilder<'_>) {
        let mut queue = self.round_robin(builder).into_iter().peekable();
        let mut is_open = !fcfs::is_preempting(self.scheduler);
        while !builder.is_spent() && !builder.prefill_budget.as_ref().is_some_and(PrefillBudget::is_spent) {
            is_open &= !builder.preempts() && self.places_left > 0;
            let waiting = queue.peek().copied().filter(|_| is_open);
            let waits = waiting.map_or(f64::INFINITY, |id| self.slack(&self.scheduler.sequences[&id]));
            let begun = self.prompts.front().copied();
            match (begun, waiting) {
                (Some((slack, id)), _) if slack <= waits => {
                    self.prompts.pop_front();
                    self.advance(builder, id);
                }
                (_, Some(id)) => {
                    queue.next();
                    is_open = self.admit(builder, id, Reserve::FullPrompt) == Scheduled::Yes;
                }
                (_, None) => return,
            }
        }
    }

    /// Those that wait, in turns: who has fewest running and before it in its own line, whoever asks; then by place
    /// in line.
    fn round_robin(&self, builder: &PlanBuilder<'_>) -> Vec<SequenceId> {
        let scheduler = self.scheduler;
        if self.places_left == 0 {
            return Vec::new();
        }
        let mut turns: BTreeMap<u64, usize> = BTreeMap::new();
        let begun = builder.queue().filter(|id| builder.is_planned(*id));
        for id in scheduler.running.iter().chain(&scheduler.leaving).copied().chain(begun) {
            *turns.entry(scheduler.sequences[&id].tenant).or_default() += 1;
        }
        let turn = |id: SequenceId| {
            let turn = turns.entry(scheduler.sequences[&id].tenant).or_default();
            *turn += 1;
            (*turn, scheduler.sequences[&id].rank)
        };
        let waiting = builder.queue().filter(|id| !builder.is_planned(*id));
        let mut ordered: Vec<(usize, Rank)> = in_line(scheduler, waiting).into_iter().map(turn).collect();
        ordered.sort_unstable();
        ordered.into_iter().map(|(_, rank)| rank.id).collect()
    }

    /// Lets a waiting sequence begin. One that begins beside others takes nothing from them.
    fn admit(&mut self, builder: &mut PlanBuilder<'_>, id: SequenceId, reserve: Reserve) -> Scheduled {
        let mut nobody = VecDeque::new();
        let victims = match reserve {
            Reserve::Chunk => &mut self.rest,
            Reserve::FullPrompt => &mut nobody,
        };
        let scheduled = builder.admit(id, reserve, victims);
        if scheduled == Scheduled::Yes {
            self.places_left -= 1;
        }
        scheduled
    }

    /// Plans a running sequence, unless it is planned or was sent back. Those behind it in line may have to make room.
    fn advance(&mut self, builder: &mut PlanBuilder<'_>, id: SequenceId) {
        let rank = self.scheduler.sequences[&id].rank;
        let own = self.rest.partition_point(|other| self.scheduler.sequences[other].rank < rank);
        if self.rest.get(own) != Some(&id) {
            return;
        }
        let mut behind = self.rest.split_off(own);
        behind.pop_front();
        if builder.advance(id, &mut behind) == Scheduled::NoBlocks {
            self.rest.push_back(id);
        }
        self.rest.append(&mut behind);
    }
}

/// What there should be between tokens, in microseconds.
fn tpot(scheduler: &Scheduler, decodes: &StepLoad) -> f64 {
    match scheduler.settings.tuning.targets.tpot {
        Some(tpot) => tpot as f64,
        None => (TPOT_STEPS * scheduler.cost.predict(decodes)).max(TPOT_MIN),
    }
}

fn in_line(scheduler: &Scheduler, ids: impl Iterator<Item = SequenceId>) -> VecDeque<SequenceId> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_by_key(|id| scheduler.sequences[id].rank);
    ids.into()
}

fn by_slack(left: &(f64, SequenceId), right: &(f64, SequenceId)) -> std::cmp::Ordering {
    left.0.total_cmp(&right.0).then(left.1.cmp(&right.1))
}
