//! By slack, inside a time (FairBatching, arXiv 2510.14392): decodes that cannot wait, then prompts by slack, then the
//! other decodes; then offline sequences, as far as the step stays in time for the online ones.
//!
//! The slack of a sequence is the time left until its next token is due. Token `j` is due `ttft + tpot · j` after
//! arrival, and not later than `tpot` after the token before it, so that an answer ahead of its schedule does not
//! stutter either. A step takes no longer than the least slack among those being answered, which is what makes a long
//! prompt come in chunks; how long it will take, the cost model says.
//!
//! Offline sequences ([`Class::Offline`]) have no slack: none of their tokens is ever due. Beside online ones they get a
//! share of the time, in steps that only decode: their decodes the share of each step, their prompts what was saved up for
//! one chunk, so that few tokens of online ones wait for a prompt, and none is late. An online one that waits may have
//! their places and their memory.
//!
//! Invariant: the first in line (by [`Rank`](crate::sequence::Rank)) advances in every step in which a sequence can, and
//! may have the memory of all others; no sequence preempts one before it in line. So an online sequence that waits long
//! enough becomes the first, and an offline one once no online one can run.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Range;

use super::Scheduler;
use super::plan_builder::{PlanBuilder, Reserve, Scheduled, Victims};
use super::prefill_budget::{LEAST_TOKENS, PrefillBudget, TimeBudget};
use super::waiting::RoundRobin;
use crate::cost::{CostModel, StepLoad};
use crate::request::{Class, Tick};
use crate::sequence::Sequence;

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
/// Share of a step reserved for other programs: some steps take a fifth longer than any model of them says.
const INTERFERENCE_SHARE: f64 = 0.1;
/// The time of offline sequences beside online ones, as a share of the time of those.
const OFFLINE_SHARE: f64 = 0.1;
/// For how many times the time of a step's online part offline sequences save up before they prefill in it. With their share
/// it keeps the steps with a chunk below one in twenty.
const CHUNK_STEPS: f64 = 2.5;
/// Most time that offline sequences may owe after steps that took longer than expected, in microseconds.
const DEBT_MAX: f64 = 5e4;

/// Waiting sequences whose slack is compared with that of the first in line.
const NEXT_IN_LINE: usize = 64;

/// Plans a step.
pub(super) fn fill(builder: &mut PlanBuilder<'_>, now: Tick) {
    let mut fair = Fair::new(builder, now);
    fair.first_in_line(builder);
    let (urgent, online) = (fair.urgent(), fair.online());
    let mut queue = builder.scheduler.sequences.waiting().round_robin(fair.admitted_first).peekable();
    fair.decode(builder, 0..urgent, fair.kept_tokens);
    fair.prefill(builder, &mut queue, Class::Online);
    fair.decode(builder, urgent..online, 0);
    fair.decode(builder, 0..urgent, 0);
    fair.offline(builder, &mut queue);
}

/// Waiting sequences in the order in which they may be admitted.
type Queue<'a> = Peekable<RoundRobin<'a>>;

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
    /// Whether more sequences may be admitted.
    is_open: bool,
    /// The first in line waits for memory that becomes free when the step in flight is done.
    is_first_put_off: bool,
    /// Tokens that decodes leave to prompts of their class in any case.
    kept_tokens: usize,
    /// Offline if there are no others.
    class: Class,
}

/// Running sequences by rank, and which of them are not in the plan.
struct Line<'a> {
    sequences: Vec<&'a Sequence>,
    is_left: Vec<bool>,
}

/// Sequences of a line after a place in it.
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

    /// The offline ones that are not in the plan, last first.
    fn offline(&self) -> impl Iterator<Item = &'a Sequence> {
        let left = self.sequences.iter().zip(&self.is_left).rev();
        left.take_while(|(sequence, _)| !is_online(sequence))
            .filter_map(|(of, is_left)| is_left.then_some(*of))
    }

    /// It is preempted.
    fn remove(&mut self, sequence: &Sequence) {
        if let Some(at) = self.find(sequence) {
            self.is_left[at] = false;
        }
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
        let waits = builder.queue_by_rank().next().is_some_and(is_online);
        let has_online = waits || runners.iter().any(|sequence| is_online(sequence));
        let class = if has_online { Class::Online } else { Class::Offline };
        let decoding = runners.iter().filter(|sequence| sequence.class() == class && sequence.is_decoding());
        let load = decoding.map(|sequence| decode_load(sequence)).fold(StepLoad::default(), StepLoad::plus);
        let mut fair = Self {
            scheduler,
            begins: scheduler.steps.next_begins(now) as f64,
            tpot: tpot(scheduler, &load),
            decodes: Vec::new(),
            prompts: VecDeque::new(),
            places_left: scheduler.limits().sequences.saturating_sub(runners.len()),
            line: Line::new(runners.iter().copied().collect()),
            admitted_first: None,
            is_open: !scheduler.sequences.is_preempting(),
            is_first_put_off: false,
            kept_tokens: 0,
            class,
        };
        let (mut decodes, mut prompts) = (Vec::with_capacity(runners.len()), Vec::new());
        for sequence in runners.iter().copied().filter(|sequence| sequence.pending() > 0) {
            let of_its_kind = if sequence.is_decoding() { &mut decodes } else { &mut prompts };
            of_its_kind.push((fair.slack(sequence), sequence));
        }
        decodes.sort_unstable_by(by_slack);
        prompts.sort_unstable_by(by_slack);
        let is_first = |sequence: &Sequence| sequence.class() == class;
        if builder.queue_by_rank().next().is_some_and(is_first)
            || prompts.iter().any(|(_, sequence)| is_first(sequence))
        {
            fair.kept_tokens = builder.tokens_left() / 4;
            builder.drafts_left = builder.drafts_left.saturating_sub(fair.kept_tokens);
        }
        let first = decodes.first().filter(|(_, first)| is_first(first));
        let budget = first.and_then(|(least, _)| match class {
            Class::Online => Some(fair.budget(*least)),
            Class::Offline => fair.chunk_budget(),
        });
        let count = decodes.iter().filter(|(_, sequence)| is_first(sequence)).count();
        let tokens = builder.tokens_left().saturating_sub(count).max(fair.kept_tokens);
        builder.prefill_budget = Some(PrefillBudget::new(&scheduler.cost, load, budget, tokens));
        (fair.decodes, fair.prompts) = (decodes, prompts.into());
        fair
    }

    /// Microseconds until the sequence's next token is due, counted from when the step begins. Without end for offline
    /// ones.
    fn slack(&self, sequence: &Sequence) -> f64 {
        if !is_online(sequence) {
            return f64::INFINITY;
        }
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

    /// What a step may take that has no online sequences: as long as the prompts alone that fill a step. One that arrives
    /// meanwhile waits no longer. `None` before the first measurement.
    fn chunk_budget(&self) -> Option<TimeBudget> {
        let chunk = StepLoad::prefill(0, self.scheduler.limits().tokens);
        let us = Some(self.scheduler.cost.predict(&chunk)).filter(|us| *us > 0.0)?;
        Some(TimeBudget { conservative_us: us, expected_us: us, late_us: us })
    }

    /// The first in line comes first of all. A prompt that others are ahead of by slack gets little more than nothing.
    fn first_in_line(&mut self, builder: &mut PlanBuilder<'a>) {
        let waiting = builder.queue_by_rank().next();
        let running = self.line.first();
        if let Some(first) = waiting.filter(|first| running.is_none_or(|running| first.rank < running.rank)) {
            if self.scheduler.sequences.is_preempting() {
                return;
            }
            if self.places_left == 0 {
                self.make_places(builder);
            }
            let most = self.most_of_first(builder, first);
            let scheduled = builder
                .within(most, |builder| builder.admit(first, Reserve::Chunk, &mut self.line.behind(0)));
            self.is_first_put_off = scheduled == Scheduled::NoBlocks;
            if scheduled == Scheduled::Yes {
                self.places_left -= 1;
                self.admitted_first = Some(first);
            }
        } else if let Some(first) = running {
            let most = self.most_of_first(builder, first);
            builder.within(most, |builder| self.advance(builder, first));
        }
    }

    /// Preempts the last in line until there is a place. After a step that failed, more may run than there are places for.
    fn make_places(&mut self, builder: &mut PlanBuilder<'a>) {
        let beyond = self.line.sequences.len().saturating_sub(self.scheduler.limits().sequences);
        for _ in 0..=beyond {
            let Some(last) = self.line.behind(0).pop_last() else { return };
            builder.preempt(last);
        }
        self.places_left = 1;
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

    /// How many of the decodes, by slack, are online.
    fn online(&self) -> usize {
        self.decodes.partition_point(|(_, sequence)| is_online(sequence))
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

    /// Prompts of a class that have begun and those that wait, by slack, as long as there is time.
    fn prefill(&mut self, builder: &mut PlanBuilder<'a>, queue: &mut Queue<'a>, class: Class) {
        let scheduler = self.scheduler;
        while !builder.is_spent() && !builder.prefill_budget.as_ref().is_some_and(PrefillBudget::is_spent) {
            self.is_open &= !builder.preempts() && self.has_place_for(class);
            while self.is_open && queue.next_if(|id| builder.is_expired(*id)).is_some() {}
            let waiting = if self.is_open { queue.peek() } else { None };
            let waiting = waiting.map(|id| &scheduler.sequences[*id]).filter(|next| next.class() == class);
            let waits = waiting.map_or(f64::INFINITY, |sequence| self.slack(sequence));
            let begun = self.prompts.front().copied().filter(|(_, begun)| begun.class() == class);
            match (begun, waiting) {
                (Some((slack, sequence)), _) if slack <= waits => {
                    self.prompts.pop_front();
                    self.advance(builder, sequence);
                }
                (_, Some(sequence)) => {
                    queue.next();
                    self.admit(builder, sequence);
                }
                (_, None) => return,
            }
        }
    }

    /// Whether a sequence of this class may begin to run.
    fn has_place_for(&self, class: Class) -> bool {
        self.places_left > 0 || class == Class::Online && self.line.offline().next().is_some()
    }

    /// Admits a sequence beside others. It preempts none, but an online one may preempt offline ones.
    fn admit(&mut self, builder: &mut PlanBuilder<'a>, sequence: &Sequence) {
        let admit = |builder: &mut PlanBuilder<'a>, places: usize| match places {
            0 => Scheduled::NoBlocks,
            _ => builder.admit(sequence, Reserve::FullPrompt, &mut VecDeque::new()),
        };
        let mut scheduled = admit(builder, self.places_left);
        if scheduled == Scheduled::NoBlocks && is_online(sequence) && !self.is_first_put_off {
            let least = usize::from(self.places_left == 0);
            let victims = builder.fewest_victims(sequence, self.line.offline(), least).unwrap_or_default();
            for victim in &victims {
                self.line.remove(victim);
                builder.preempt(victim);
            }
            self.places_left += victims.len();
            scheduled = admit(builder, victims.len());
        }
        self.is_open = scheduled == Scheduled::Yes;
        self.places_left -= usize::from(self.is_open);
    }

    /// Plans offline sequences, decodes first, in what online ones leave of the step. They wait for the prompts of online
    /// ones.
    fn offline(&mut self, builder: &mut PlanBuilder<'a>, queue: &mut Queue<'a>) {
        if !self.scheduler.sequences.waiting().has_offline() || builder.prefills(Class::Online) {
            return;
        }
        let decodes = self.online()..self.decodes.len();
        if self.class == Class::Online {
            return self.offline_in_spare_time(builder, decodes, queue);
        }
        self.decode(builder, decodes.clone(), self.kept_tokens);
        self.prefill(builder, queue, Class::Offline);
        self.decode(builder, decodes, 0);
    }

    /// Plans offline sequences beside online ones: decodes in their share of the step, then prompts, if enough was saved up.
    fn offline_in_spare_time(
        &mut self,
        builder: &mut PlanBuilder<'a>,
        decodes: Range<usize>,
        queue: &mut Queue<'a>,
    ) {
        let most_us = self.budget(f64::INFINITY).conservative_us;
        let Some(budget) = &mut builder.prefill_budget else { return };
        let (online_us, saved_us) = (budget.load_us(), self.scheduler.policy.spare_us);
        let share_us = OFFLINE_SHARE * online_us;
        budget.limit(most_us.min(online_us + share_us + saved_us));
        let most_us = online_us + share_us + saved_us.min(0.0);
        self.decode_within(builder, decodes, most_us);
        if saved_us >= CHUNK_STEPS * online_us {
            self.prefill(builder, queue, Class::Offline);
        }
    }

    /// Plans decodes, as long as the step takes no longer than `most_us`.
    fn decode_within(&mut self, builder: &mut PlanBuilder<'a>, which: Range<usize>, most_us: f64) {
        for at in which {
            let (_, sequence) = self.decodes[at];
            let is_in_time =
                |budget: &mut PrefillBudget<'_>| budget.add_decode(decode_load(sequence), most_us);
            if builder.is_spent() || !builder.prefill_budget.as_mut().is_none_or(is_in_time) {
                return;
            }
            self.advance(builder, sequence);
        }
    }

    /// Plans a running sequence, unless it is planned or was preempted. Those after it in line may be preempted for it.
    fn advance(&mut self, builder: &mut PlanBuilder<'a>, sequence: &Sequence) {
        let Some(own) = self.line.find(sequence) else { return };
        self.line.is_left[own] = false;
        if builder.advance(sequence, &mut self.line.behind(own + 1)) == Scheduled::NoBlocks {
            self.line.is_left[own] = true;
        }
    }
}

/// What offline sequences may take beside online ones, in microseconds, after a step that took so long and would have taken
/// `online_us` without offline sequences. `before`: before that step.
pub(super) fn spare_after(before: f64, took_us: f64, online_us: f64) -> f64 {
    let after = before + OFFLINE_SHARE * online_us - (took_us - online_us);
    after.clamp(-DEBT_MAX, 2.0 * CHUNK_STEPS * online_us)
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

fn is_online(sequence: &Sequence) -> bool {
    sequence.class() == Class::Online
}

/// What a decoding sequence adds to a step.
fn decode_load(sequence: &Sequence) -> StepLoad {
    StepLoad::verify(sequence.computed, sequence.pending() + sequence.drafts())
}

fn by_slack(left: &WithSlack<'_>, right: &WithSlack<'_>) -> Ordering {
    left.0.total_cmp(&right.0).then(left.1.id().cmp(&right.1.id()))
}
