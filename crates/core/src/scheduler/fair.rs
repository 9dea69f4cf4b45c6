//! By slack, inside a time (FairBatching, arXiv 2510.14392): decodes that cannot wait, then prompts by slack, then the
//! other decodes.
//!
//! The slack of a sequence is the time left until its next token is due. Token `j` is due `ttft + tpot · j` after
//! arrival, and not later than `tpot` after the token before it, so that an answer ahead of its schedule does not
//! stutter either. A step takes no longer than the least slack among those being answered, which is what makes a long
//! prompt come in chunks; how long it will take, the cost model says.
//!
//! Invariant: the first in line (by [`Rank`]) advances in every step in which a sequence can, and may have the memory
//! of all others; no sequence preempts one before it in line. So a sequence that waits long enough becomes the first.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;

use super::Scheduler;
use super::plan_builder::{PlanBuilder, Reserve, Scheduled, Victims};
use super::prefill_budget::{LEAST_TOKENS, PrefillBudget, TimeBudget};
use crate::sequence::Sequence;
use crate::{CostModel, StepLoad, Tick};

/// From arrival to the first token, without a target.
const TTFT: f64 = 2e6;
/// From token to token at least, without a target.
const TPOT_MIN: f64 = 5e4;
/// From token to token, in steps that only decode, without a target.
const TPOT_STEPS: f64 = 4.0;
/// How many times as long as the flat part of a step its prompts may take, without a target: eight ninths of prefill are
/// then paid for tokens.
const FLAT_PARTS: f64 = 8.0;
/// What is kept for the time between steps.
const HOST_SHARE: f64 = 0.12;
/// What is kept for others who use the machine: some steps take a fifth longer than any model of them says.
const INTERFERENCE_SHARE: f64 = 0.1;

/// Waiting sequences whose slack is compared with that of the first in line.
const NEXT_IN_LINE: usize = 64;

/// Plans a step.
pub(super) fn fill(builder: &mut PlanBuilder<'_>, now: Tick) {
    let mut fair = Fair::new(builder, now);
    fair.first_in_line(builder);
    let (urgent, all) = (fair.urgent(), fair.decodes.len());
    fair.decode(builder, 0..urgent, fair.kept_tokens);
    fair.prefill(builder);
    fair.decode(builder, urgent..all, 0);
    fair.decode(builder, 0..urgent, 0);
}

/// A running sequence that can be planned, and its slack.
type WithSlack<'a> = (f64, &'a Sequence);

/// What a step is made from.
struct Fair<'a> {
    scheduler: &'a Scheduler,
    /// When the step will begin, in microseconds.
    begins: f64,
    /// Between the tokens of an answer.
    tpot: f64,
    /// Running sequences that decode, by slack.
    decodes: Vec<WithSlack<'a>>,
    /// Running sequences that have more to compute, by slack.
    prompts: VecDeque<WithSlack<'a>>,
    line: Line<'a>,
    /// The first in line, if it was waiting and the plan admits it.
    admitted_first: Option<&'a Sequence>,
    /// Sequences that may begin to run.
    places_left: usize,
    /// Tokens that decodes leave to prompts in any case.
    kept_tokens: usize,
}

/// Running sequences by rank, and which of them are not in the plan.
struct Line<'a> {
    sequences: Vec<&'a Sequence>,
    is_left: Vec<bool>,
}

/// Those of a line behind a place in it.
struct Behind<'l, 'a> {
    line: &'l mut Line<'a>,
    first: usize,
}

impl<'a> Line<'a> {
    fn new(mut sequences: Vec<&'a Sequence>) -> Self {
        sequences.sort_unstable_by_key(|sequence| sequence.rank);
        Self { is_left: vec![true; sequences.len()], sequences }
    }

    fn first(&self) -> Option<&'a Sequence> {
        self.sequences.first().copied()
    }

    /// Where the sequence stands, unless it is planned or was preempted.
    fn find(&self, sequence: &Sequence) -> Option<usize> {
        let at = self.sequences.binary_search_by_key(&sequence.rank, |other| other.rank).ok()?;
        self.is_left[at].then_some(at)
    }

    fn behind(&mut self, first: usize) -> Behind<'_, 'a> {
        Behind { line: self, first }
    }
}

impl<'a> Victims<'a> for Behind<'_, 'a> {
    fn is_empty(&self) -> bool {
        !self.line.is_left[self.first..].contains(&true)
    }

    fn pop_last(&mut self) -> Option<&'a Sequence> {
        let last = self.first + self.line.is_left[self.first..].iter().rposition(|is_left| *is_left)?;
        self.line.is_left[last] = false;
        Some(self.line.sequences[last])
    }
}

impl<'a> Fair<'a> {
    fn new(builder: &mut PlanBuilder<'a>, now: Tick) -> Self {
        let scheduler = builder.scheduler;
        let runners = builder.runners();
        let decoding = runners.iter().filter(|sequence| sequence.is_decoding());
        let load = decoding
            .map(|sequence| StepLoad::verify(sequence.computed, sequence.pending() + sequence.drafts()));
        let load = load.fold(StepLoad::default(), StepLoad::plus);
        let mut fair = Self {
            scheduler,
            begins: scheduler.steps.next_begins(now) as f64,
            tpot: tpot(scheduler, &load),
            decodes: Vec::new(),
            prompts: VecDeque::new(),
            places_left: scheduler.limits().sequences.saturating_sub(runners.len()),
            line: Line::new(runners.iter().copied().collect()),
            admitted_first: None,
            kept_tokens: 0,
        };
        let (mut decodes, mut prompts) = (Vec::with_capacity(runners.len()), Vec::new());
        for sequence in runners.iter().copied().filter(|sequence| sequence.pending() > 0) {
            let of_its_kind = if sequence.is_decoding() { &mut decodes } else { &mut prompts };
            of_its_kind.push((fair.slack(sequence), sequence));
        }
        decodes.sort_unstable_by(by_slack);
        prompts.sort_unstable_by(by_slack);
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
        let prefill_us = self.scheduler.cost.predict(&StepLoad::prefill(0, sequence.prompt));
        let first = sequence.rank.came as f64 + ttft.max(2.0 * prefill_us);
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
        let margins = margins(&self.scheduler.cost);
        TimeBudget {
            conservative_us: least / margins,
            expected_us: least / (1.0 + HOST_SHARE),
            late_us: self.tpot / margins,
        }
    }

    /// The first in line comes first of all. A prompt that others are ahead of by slack gets little more than nothing.
    fn first_in_line(&mut self, builder: &mut PlanBuilder<'a>) {
        let waiting = builder.queue_by_rank().next();
        let running = self.line.first();
        if let Some(first) = waiting.filter(|first| running.is_none_or(|running| first.rank < running.rank)) {
            if self.scheduler.sequences.is_preempting() {
                return;
            }
            if self.places_left == 0
                && let Some(last) = self.line.behind(0).pop_last()
            {
                builder.preempt(last);
                self.places_left += 1;
            }
            let most = self.most_of_first(builder, first);
            let scheduled = builder
                .within(most, |builder| builder.admit(first, Reserve::Chunk, &mut self.line.behind(0)));
            if scheduled == Scheduled::Yes {
                self.places_left -= 1;
                self.admitted_first = Some(first);
            }
        } else if let Some(first) = running {
            let most = self.most_of_first(builder, first);
            builder.within(most, |builder| self.advance(builder, first));
        }
    }

    /// The most tokens of the first in line. Of the waiting sequences, those next in line are looked at.
    fn most_of_first(&self, builder: &PlanBuilder<'a>, first: &Sequence) -> usize {
        let own = self.slack(first);
        let waiting = builder.queue_by_rank().take(NEXT_IN_LINE).map(|sequence| self.slack(sequence));
        let mut others = self.prompts.iter().map(|(slack, _)| *slack).chain(waiting);
        if others.any(|slack| slack < own) { LEAST_TOKENS } else { usize::MAX }
    }

    /// How many of the decodes, by slack, cannot wait for the step after this one.
    fn urgent(&self) -> usize {
        self.decodes.partition_point(|(slack, _)| *slack < 2.0 * self.tpot)
    }

    /// Plans decodes, as long as more than `kept` tokens of the step are left.
    fn decode(&mut self, builder: &mut PlanBuilder<'a>, which: Range<usize>, kept: usize) {
        for at in which {
            if builder.is_spent() || builder.tokens_left() <= kept {
                return;
            }
            self.advance(builder, self.decodes[at].1);
        }
    }

    /// Prompts that have begun and those that wait, by slack, as long as there is time.
    fn prefill(&mut self, builder: &mut PlanBuilder<'a>) {
        let scheduler = self.scheduler;
        let mut queue = scheduler.sequences.waiting().round_robin(self.admitted_first).peekable();
        let mut is_open = !scheduler.sequences.is_preempting();
        while !builder.is_spent() && !builder.prefill_budget.as_ref().is_some_and(PrefillBudget::is_spent) {
            is_open &= !builder.preempts() && self.places_left > 0;
            while is_open && queue.next_if(|id| builder.is_expired(*id)).is_some() {}
            let waiting = if is_open { queue.peek() } else { None };
            let waiting = waiting.map(|id| &scheduler.sequences[*id]);
            let waits = waiting.map_or(f64::INFINITY, |sequence| self.slack(sequence));
            let begun = self.prompts.front().copied();
            match (begun, waiting) {
                (Some((slack, sequence)), _) if slack <= waits => {
                    self.prompts.pop_front();
                    self.advance(builder, sequence);
                }
                (_, Some(sequence)) => {
                    queue.next();
                    // A sequence that is admitted beside others preempts none.
                    let scheduled = builder.admit(sequence, Reserve::FullPrompt, &mut VecDeque::new());
                    is_open = scheduled == Scheduled::Yes;
                    self.places_left -= usize::from(is_open);
                }
                (_, None) => return,
            }
        }
    }

    /// Plans a running sequence, unless it is planned or was preempted. Those behind it in line may be preempted for it.
    fn advance(&mut self, builder: &mut PlanBuilder<'a>, sequence: &Sequence) {
        let Some(own) = self.line.find(sequence) else { return };
        self.line.is_left[own] = false;
        if builder.advance(sequence, &mut self.line.behind(own + 1)) == Scheduled::NoBlocks {
            self.line.is_left[own] = true;
        }
    }
}

/// What there should be between tokens, in microseconds.
pub(super) fn tpot(scheduler: &Scheduler, decodes: &StepLoad) -> f64 {
    if let Some(tpot) = scheduler.settings.tuning.targets.tpot {
        return tpot as f64;
    }
    let cost = &scheduler.cost;
    let tokens = scheduler.limits().tokens.saturating_sub(decodes.decode_tokens as usize);
    let prompts = cost.prefill_tokens_within(FLAT_PARTS * cost.flat_us(), tokens);
    let step_us = cost.predict(&decodes.plus(StepLoad::prefill(0, prompts)));
    let margins = margins(cost);
    (TPOT_STEPS * cost.predict(decodes)).max(TPOT_MIN).max(step_us * margins)
}

/// By how much longer than expected a step may take.
pub(super) fn margins(cost: &CostModel) -> f64 {
    1.0 + HOST_SHARE + INTERFERENCE_SHARE + cost.doubt()
}

fn by_slack(left: &WithSlack<'_>, right: &WithSlack<'_>) -> Ordering {
    left.0.total_cmp(&right.0).then(left.1.id().cmp(&right.1.id()))
}
