//! Which draft tokens are worth their time: how often drafts are accepted, as learned, and the choice for the next step.
//!
//! A step that verifies drafts computes more rows and yields more tokens. The choice maximizes tokens per second, by the
//! cost model and by the chance that a draft is accepted, as in SmartSpec (arXiv 2406.14066) and vLLM's adaptive
//! verification: draft positions of all sequences are taken in the order of their survival, the product of the chances
//! up to there, as long as the rate rises.
//!
//! Invariant: chances change what a step costs, never what it yields.

use serde::{Deserialize, Serialize};

use crate::cost::{CostModel, DraftLoad, ROWS_KNOWN, StepLoad};
use crate::request::SequenceId;

/// Kinds of drafts.
pub const DRAFT_KINDS: usize = 8;
/// Positions of a draft with a chance of their own; later ones have that of the last.
pub const DRAFT_POSITIONS: usize = 8;
/// The chance before anything was measured.
const PRIOR: f32 = 0.5;
/// The chance of what a model or head drafts before anything was measured: most were trained for that.
const NETWORK_PRIOR: f32 = 0.7;
/// The weight of the newest draft in the chances of all sequences.
const SHARED_GAIN: f32 = 0.05;
/// In those of one sequence.
const OWN_GAIN: f32 = 0.05;
/// In those of one sequence that has had few.
const EARLY_GAIN: f32 = 0.1;
/// How many drafts are few.
const FEW: u32 = 16;
/// How fast the chances of positions that are not tried become those that are assumed.
const FADING: f32 = 0.02;
/// By how much more the rate must rise, which covers what the cost model does not know.
const MARGIN: f64 = 1.03;
/// Steps without drafts after which one tries some again.
const PATIENCE: u32 = 128;
/// The most such steps, after trials that failed.
const PATIENCE_MAX: u32 = 4096;
/// Choices with drafts after which one may try fewer.
const PROBE_EVERY: u32 = 8;
/// Draft tokens of a trial.
const TRIAL_TOKENS: usize = 2;
/// Sequences of a trial.
const TRIAL_SEQUENCES: usize = 2;

/// Drafts that are accepted about equally often: of one proposer, with matches of about one length, for example. Below
/// [`DRAFT_KINDS`]; higher ones count as the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DraftKind(pub u8);

impl DraftKind {
    /// Of a draft model or head.
    pub const NETWORK: Self = Self(DRAFT_KINDS as u8 - 1);
}

/// Draft tokens that a proposer has for the next step of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftOffer {
    /// The sequence.
    pub sequence: SequenceId,
    /// How many.
    pub tokens: usize,
    /// Of which kind.
    pub kind: DraftKind,
    /// Whether they are known.
    pub work: DraftWork,
}

/// What draft tokens cost before they can be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum DraftWork {
    /// Nothing: they are known.
    #[default]
    None,
    /// A draft model computes them, one after the other, once the step is planned.
    Model,
}

/// How many of the offered draft tokens are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum DraftPolicy {
    /// As many as make tokens faster.
    #[default]
    Adaptive,
    /// All.
    All,
}

/// The chance of each draft position to be accepted, if those before it are, by kind.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Chances([[f32; DRAFT_POSITIONS]; DRAFT_KINDS]);

impl Default for Chances {
    fn default() -> Self {
        let mut chances = [[PRIOR; DRAFT_POSITIONS]; DRAFT_KINDS];
        chances[usize::from(DraftKind::NETWORK.0)] = [NETWORK_PRIOR; DRAFT_POSITIONS];
        Self(chances)
    }
}

impl Chances {
    fn of(&self, kind: DraftKind) -> &[f32; DRAFT_POSITIONS] {
        &self.0[usize::from(kind.0).min(DRAFT_KINDS - 1)]
    }

    /// Draft tokens were verified: those up to the first that was not accepted say something. What is known of later positions
    /// fades to what `usual` says of them; without it to what is known of the position before.
    fn learn(
        &mut self,
        kind: DraftKind,
        (tokens, accepted): (usize, usize),
        gain: f32,
        usual: Option<&[f32; DRAFT_POSITIONS]>,
    ) {
        let chances = &mut self.0[usize::from(kind.0).min(DRAFT_KINDS - 1)];
        let seen = tokens.min(accepted + 1);
        for at in 0..seen {
            let chance = &mut chances[at.min(DRAFT_POSITIONS - 1)];
            *chance += gain * (f32::from(u8::from(at < accepted)) - *chance);
        }
        for at in seen.max(1)..DRAFT_POSITIONS {
            let other = usual.map_or(chances[at - 1], |usual| usual[at]);
            chances[at] += FADING * (other - chances[at]);
        }
    }
}

/// What is known of one sequence's drafts.
#[derive(Debug, Clone)]
pub(crate) struct SequenceDrafts {
    /// Draft tokens that its next decode steps verify, where there is room.
    pub(crate) tokens: usize,
    kind: DraftKind,
    chances: Chances,
    /// Drafts verified.
    verified: u32,
}

impl SequenceDrafts {
    /// So many tokens of this kind will be verified.
    pub(crate) fn set(&mut self, tokens: usize, kind: DraftKind) {
        (self.tokens, self.kind) = (tokens, kind);
    }
}

/// What is known of the drafts of all sequences.
#[derive(Debug, Clone)]
pub(crate) struct Drafting {
    chances: Chances,
    /// Choices in a row that took none of the offers.
    refused: u32,
    patience: u32,
    /// The present choice is a trial.
    is_trial: bool,
    trials: usize,
    /// Choices that took some of the offers.
    choices: u32,
    /// What a step costs more that is not planned ahead, in microseconds.
    pub(crate) host_us: f64,
}

impl Default for Drafting {
    fn default() -> Self {
        Self {
            chances: Chances::default(),
            refused: 0,
            patience: PATIENCE,
            is_trial: false,
            trials: 0,
            choices: 0,
            host_us: 0.0,
        }
    }
}

/// An offer, with what the choice needs to know of its sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    /// At most as many tokens as the sequence has room for.
    pub(crate) tokens: usize,
    pub(crate) kind: DraftKind,
    pub(crate) work: DraftWork,
    pub(crate) drafts: &'a SequenceDrafts,
}

/// A draft position that may be verified.
struct Slot {
    /// Its candidate.
    at: usize,
    /// Its place among the sequence's draft tokens.
    depth: usize,
    /// The chance that it and those before it are accepted.
    survival: f64,
}

/// The choice that makes tokens fastest.
struct Worth {
    /// Tokens per microsecond.
    rate: f64,
    /// So many of the slots that are allowed, most likely first.
    slots: usize,
    /// Most draft tokens of a sequence that a network computes.
    depths: usize,
}

impl Drafting {
    /// Of a new sequence: what is known of all.
    pub(crate) fn sequence(&self) -> SequenceDrafts {
        SequenceDrafts { tokens: 0, kind: DraftKind::default(), chances: self.chances, verified: 0 }
    }

    /// A sequence's draft tokens were verified.
    pub(crate) fn learn(&mut self, drafts: &mut SequenceDrafts, tokens: usize, accepted: usize) {
        let gain = if drafts.verified < FEW { EARLY_GAIN } else { OWN_GAIN };
        self.chances.learn(drafts.kind, (tokens, accepted), SHARED_GAIN, None);
        let usual = self.chances.of(drafts.kind);
        drafts.chances.learn(drafts.kind, (tokens, accepted), gain, Some(usual));
        drafts.verified = drafts.verified.saturating_add(1);
        if std::mem::take(&mut self.is_trial) && accepted == 0 {
            self.patience = (2 * self.patience).min(PATIENCE_MAX);
        }
    }

    /// How many of their offered draft tokens the sequences verify. `batch`: sequences that decode, of which the step would
    /// be `load` without these drafts. None before steps were measured.
    pub(crate) fn choose(
        &mut self,
        policy: DraftPolicy,
        (batch, load): (usize, StepLoad),
        cost: &CostModel,
        candidates: &[Candidate<'_>],
    ) -> Vec<usize> {
        let mut chosen = vec![0; candidates.len()];
        if policy == DraftPolicy::All {
            return candidates.iter().map(|candidate| candidate.tokens).collect();
        }
        let slots = slots(candidates);
        if slots.is_empty() || cost.predict(&load) <= 0.0 {
            return chosen;
        }
        let worth = self.worth(&slots, (batch, load), cost, candidates);
        let allowed = |slot: &&Slot| candidates[slot.at].work == DraftWork::None || slot.depth < worth.depths;
        let taken = self.probed(worth.slots, load.decode_tokens as usize, cost);
        for slot in slots.iter().filter(allowed).take(taken) {
            chosen[slot.at] += 1;
        }
        (self.refused, self.patience) =
            if worth.slots > 0 { (0, PATIENCE) } else { (self.refused + 1, self.patience) };
        self.is_trial = self.refused >= self.patience;
        if self.is_trial {
            self.refused = 0;
            self.try_some(candidates, &mut chosen);
        }
        chosen
    }

    /// Of several candidates of one sequence, the one that makes the most tokens per second beside a batch. Before steps were
    /// measured, the one of which most tokens are expected to be accepted.
    pub(crate) fn fastest(
        &self,
        (batch, load): (usize, StepLoad),
        cost: &CostModel,
        candidates: &[Candidate<'_>],
    ) -> Option<usize> {
        let of = |candidate: &Candidate<'_>| {
            let slots = slots(std::slice::from_ref(candidate));
            let expected: f64 = slots.iter().map(|slot| slot.survival).sum();
            let Worth { rate, .. } = self.worth(&slots, (batch, load), cost, std::slice::from_ref(candidate));
            if rate.is_finite() { rate } else { expected }
        };
        let rates = candidates.iter().map(of).enumerate();
        let tokens = |at: &usize| candidates.get(*at).map_or(0, |candidate| candidate.tokens);
        let best = rates.max_by(|(one, rate), (other, than)| {
            rate.total_cmp(than).then(tokens(one).cmp(&tokens(other))).then(other.cmp(one))
        });
        best.map(|(at, _)| at)
    }

    /// How many slots to take where so many seem best: now and then fewer, so that a step has a number of rows of which little is
    /// known. It might cost much less, and nothing else tells. `rows`: without slots.
    fn probed(&mut self, slots: usize, rows: usize, cost: &CostModel) -> usize {
        self.choices += u32::from(slots > 0);
        let fewer = || cost.little_known_rows(rows, rows + slots).map(|fewer| fewer - rows);
        match slots > 0 && self.choices.is_multiple_of(PROBE_EVERY) {
            true => fewer().unwrap_or(slots),
            false => slots,
        }
    }

    /// What makes the most tokens per microsecond: at least as many as without slots, and the margin. A round of a network that
    /// drafts takes about as long with few sequences as with all, so each number of rounds is tried.
    fn worth(
        &self,
        slots: &[Slot],
        (batch, load): (usize, StepLoad),
        cost: &CostModel,
        candidates: &[Candidate<'_>],
    ) -> Worth {
        let mut best =
            Worth { rate: MARGIN * batch as f64 / cost.predict(&load), slots: 0, depths: usize::MAX };
        let steps = self.step_times(slots.len(), load, cost);
        let computed = |slot: &&Slot| candidates[slot.at].work == DraftWork::Model;
        let rounds = slots.iter().filter(computed).map(|slot| 1 + slot.depth).max().unwrap_or(0);
        for most in rounds.min(1)..=rounds {
            let mut tokens = batch as f64;
            let mut drafting = DraftLoad { rounds: most, rows: 0 };
            let allowed = |slot: &&Slot| !computed(slot) || slot.depth < most;
            for ((count, slot), step_us) in (1..).zip(slots.iter().filter(allowed)).zip(&steps) {
                tokens += slot.survival;
                drafting.rows += usize::from(computed(&slot));
                let rate = tokens / (step_us + cost.drafts.predict(drafting));
                if rate > best.rate {
                    best = Worth { rate, slots: count, depths: most };
                }
            }
        }
        best
    }

    /// Expected microseconds of steps that verify one, two and more draft tokens, as far as something is known of them.
    fn step_times(&self, most: usize, mut load: StepLoad, cost: &CostModel) -> Vec<f64> {
        let times = (0..most).map_while(|_| {
            load = load.plus(StepLoad::draft());
            (load.decode_tokens <= ROWS_KNOWN).then(|| cost.predict(&load) + self.host_us)
        });
        times.collect()
    }

    /// Gives a few sequences, in turns, some of what they offer.
    fn try_some(&mut self, candidates: &[Candidate<'_>], chosen: &mut [usize]) {
        let offering: Vec<usize> = (0..candidates.len()).filter(|at| candidates[*at].tokens > 0).collect();
        for at in offering.iter().cycle().skip(self.trials % offering.len()).take(TRIAL_SEQUENCES) {
            chosen[*at] = candidates[*at].tokens.min(TRIAL_TOKENS);
        }
        self.trials += TRIAL_SEQUENCES;
    }
}

/// The offered draft positions, most likely first. Those of a sequence are in order, because their survival falls.
fn slots(candidates: &[Candidate<'_>]) -> Vec<Slot> {
    let mut slots = Vec::with_capacity(candidates.iter().map(|candidate| candidate.tokens).sum());
    for (at, candidate) in candidates.iter().enumerate() {
        let chances = candidate.drafts.chances.of(candidate.kind);
        let mut survival = 1.0;
        for depth in 0..candidate.tokens {
            survival *= f64::from(chances[depth.min(DRAFT_POSITIONS - 1)]);
            slots.push(Slot { at, depth, survival });
        }
    }
    slots.sort_by(|left, right| right.survival.total_cmp(&left.survival));
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::StepCost;
    use crate::padding::Padding;
    use crate::random::Rng;
    use crate::request::Tick;

    /// A step costs 1,000 microseconds, and each row so many more.
    fn cost(token_us: f64) -> CostModel {
        let mut cost = CostModel::default();
        cost.decode = StepCost::new(1_000.0, token_us, 0.0);
        cost
    }

    fn load(batch: usize) -> StepLoad {
        (0..batch).fold(StepLoad::default(), |load, _| load.plus(StepLoad::decode(100)))
    }

    /// Sequences of which the given share of drafts was accepted, a hundred times.
    fn sequences(drafting: &mut Drafting, accepted: &[usize], of: usize) -> Vec<SequenceDrafts> {
        let learned = accepted.iter().map(|accepted| {
            let mut drafts = drafting.sequence();
            drafts.set(of, DraftKind(1));
            (0..100).for_each(|_| drafting.learn(&mut drafts, of, *accepted));
            drafts
        });
        learned.collect()
    }

    fn choose(
        drafting: &mut Drafting,
        batch: usize,
        cost: &CostModel,
        sequences: &mut [SequenceDrafts],
        offered: usize,
    ) -> Vec<usize> {
        let kind = DraftKind(1);
        let work = DraftWork::None;
        let candidate = |drafts| Candidate { tokens: offered, kind, work, drafts };
        let candidates: Vec<Candidate<'_>> = sequences.iter().map(candidate).collect();
        let chosen = drafting.choose(DraftPolicy::Adaptive, (batch, load(batch)), cost, &candidates);
        sequences.iter_mut().zip(&chosen).for_each(|(drafts, tokens)| drafts.set(*tokens, kind));
        chosen
    }

    #[test]
    fn drafts_that_are_accepted_are_verified_and_others_are_not() {
        let mut drafting = Drafting::default();
        let mut of_both = sequences(&mut drafting, &[4, 0], 4);
        let chosen = choose(&mut drafting, 2, &cost(20.0), &mut of_both, 6);
        assert_eq!(chosen, [6, 0]);
    }

    #[test]
    fn dearer_rows_and_larger_batches_have_fewer_drafts() {
        let mut drafting = Drafting::default();
        let mut before = usize::MAX;
        for token_us in [1.0, 50.0, 150.0, 300.0, 2_000.0] {
            let mut one = vec![drafting.sequence()];
            let chosen = choose(&mut drafting, 1, &cost(token_us), &mut one, 8)[0];
            assert!(chosen <= before, "{chosen} at {token_us} us a row");
            before = chosen;
        }
        assert_eq!(before, 0);
        let of = |batch: usize| {
            let mut drafting = Drafting::default();
            let mut all = vec![drafting.sequence(); batch];
            choose(&mut drafting, batch, &cost(100.0), &mut all, 8).iter().sum::<usize>() as f64
                / batch as f64
        };
        assert!(of(1) > of(8) && of(8) >= of(64), "{} {} {}", of(1), of(8), of(64));
    }

    #[test]
    fn the_time_between_steps_that_are_not_planned_ahead_counts() {
        let mut drafting = Drafting::default();
        let mut one = vec![drafting.sequence()];
        assert!(choose(&mut drafting, 1, &cost(100.0), &mut one, 4)[0] > 0);
        drafting.host_us = 2_000.0;
        assert_eq!(choose(&mut drafting, 1, &cost(100.0), &mut one, 4), [0]);
    }

    #[test]
    fn tokens_that_a_model_computes_cost_its_rounds() {
        let chosen = |round_us: u64, work: DraftWork| {
            let mut cost = cost(10.0);
            (0..50).for_each(|at| {
                let rounds = 1 + at % 4;
                cost.learn_drafts(DraftLoad { rounds, rows: rounds }, round_us * rounds as u64);
            });
            let mut drafting = Drafting::default();
            let one = sequences(&mut drafting, &[4], 5).remove(0);
            let candidate = Candidate { tokens: 8, kind: DraftKind(1), work, drafts: &one };
            drafting.choose(DraftPolicy::Adaptive, (1, load(1)), &cost, &[candidate])[0]
        };
        assert_eq!(chosen(100, DraftWork::Model), 4);
        assert_eq!(chosen(3_000, DraftWork::Model), 0);
        assert_eq!(chosen(3_000, DraftWork::None), 4);
    }

    #[test]
    fn of_two_sources_the_one_that_makes_tokens_faster_is_asked() {
        let mut cost = cost(10.0);
        (0..50).for_each(|at| cost.learn_drafts(DraftLoad { rounds: 1 + at % 4, rows: 1 + at % 4 }, 50));
        let mut drafting = Drafting::default();
        let mut one = drafting.sequence();
        let [copied, model] = [DraftKind(2), DraftKind(7)];
        for (kind, accepted) in [(copied, 1), (model, 4)] {
            one.set(4, kind);
            (0..100).for_each(|_| drafting.learn(&mut one, 4, accepted));
        }
        let of = |kind, tokens, work| Candidate { tokens, kind, work, drafts: &one };
        let both = [of(copied, 16, DraftWork::None), of(model, 4, DraftWork::Model)];
        assert_eq!(drafting.fastest((1, load(1)), &cost, &both), Some(1));
        let none = [of(copied, 2, DraftWork::None), of(model, 0, DraftWork::Model)];
        assert_eq!(drafting.fastest((1, load(1)), &cost, &none), Some(0));
        assert_eq!(drafting.fastest((1, load(1)), &CostModel::default(), &both), Some(1));
        assert_eq!(drafting.fastest((1, load(1)), &cost, &[]), None);
    }

    #[test]
    fn what_was_refused_is_tried_again_ever_more_seldom() {
        let mut drafting = Drafting::default();
        let mut one = sequences(&mut drafting, &[0], 4);
        let mut trials = Vec::new();
        for step in 0..4_000 {
            let chosen = choose(&mut drafting, 1, &cost(100.0), &mut one, 4)[0];
            if chosen > 0 {
                trials.push(step);
                drafting.learn(&mut one[0], chosen, 0);
            }
        }
        assert!((4..8).contains(&trials.len()), "{trials:?}");
        assert!(trials.windows(3).all(|of| of[2] - of[1] > of[1] - of[0]), "{trials:?}");
        // The text has changed: from now on all are accepted.
        let taken = (0..20_000).filter(|_| {
            let chosen = choose(&mut drafting, 1, &cost(100.0), &mut one, 4)[0];
            if chosen > 0 {
                drafting.learn(&mut one[0], chosen, chosen);
            }
            chosen > 2
        });
        assert!(taken.count() > 4_000);
    }

    /// Microseconds of the passes of an 8B model on an H200 by their rows: products of more than 64 rows use other kernels.
    const STEP_US: [(usize, f64); 13] = [
        (1, 4_000.0),
        (2, 4_050.0),
        (4, 4_150.0),
        (8, 4_250.0),
        (16, 4_500.0),
        (32, 4_900.0),
        (48, 5_300.0),
        (64, 5_800.0),
        (80, 8_000.0),
        (96, 8_200.0),
        (128, 8_600.0),
        (192, 10_200.0),
        (256, 11_700.0),
    ];

    /// Tokens per millisecond of so many sequences, of whose drafts 80 % are accepted at each position, over the last 500 of 1,000
    /// steps. `fixed`: draft tokens of each, in place of the choice.
    fn rate(streams: usize, fixed: Option<usize>) -> f64 {
        let mut rng = Rng::new(7);
        let (mut cost, mut drafting) = (CostModel::padded(Padding::Buckets), Drafting::default());
        let mut sequences: Vec<SequenceDrafts> = (0..streams).map(|_| drafting.sequence()).collect();
        let (mut tokens, mut us) = (0, 0.0);
        for step in 0..1_000 {
            let of =
                |drafts| Candidate { tokens: 16, kind: DraftKind::NETWORK, work: DraftWork::Model, drafts };
            let candidates: Vec<Candidate<'_>> = sequences.iter().map(of).collect();
            let chosen = drafting.choose(DraftPolicy::Adaptive, (streams, load(streams)), &cost, &candidates);
            let chosen = fixed.map_or(chosen, |count| vec![count; streams]);
            let rows: usize = chosen.iter().map(|count| 1 + count).sum();
            let noise = 0.98 + 0.04 * rng.below(1_000) as f64 / 1_000.0;
            let padded = Padding::Buckets.of(rows);
            let step_us =
                STEP_US.iter().find(|(most, _)| padded <= *most).map_or(30_000.0, |(_, us)| *us) * noise;
            let drafted =
                DraftLoad { rounds: chosen.iter().copied().max().unwrap_or(0), rows: rows - streams };
            let draft_us = if drafted.rounds > 0 {
                500.0 + 350.0 * drafted.rounds as f64 + 3.0 * drafted.rows as f64
            } else {
                0.0
            };
            cost.learn(
                &(0..rows).fold(StepLoad::default(), |load, _| load.plus(StepLoad::decode(100))),
                step_us as Tick,
            );
            cost.learn_drafts(drafted, draft_us as Tick);
            let mut yielded = 0;
            for (drafts, count) in sequences.iter_mut().zip(chosen) {
                let accepted = (0..count).take_while(|_| rng.below(100) < 80).count();
                drafts.set(count, DraftKind::NETWORK);
                if count > 0 {
                    drafting.learn(drafts, count, accepted);
                }
                yielded += 1 + accepted;
            }
            if step >= 500 {
                (tokens, us) = (tokens + yielded, us + step_us + draft_us);
            }
        }
        1e3 * tokens as f64 / us
    }

    #[test]
    fn the_choice_is_near_the_best_fixed_number() {
        for streams in [1, 4, 16, 64] {
            let best = (0..8).map(|count| rate(streams, Some(count))).fold(0.0, f64::max);
            let chosen = rate(streams, None);
            assert!(chosen > 0.97 * best, "{streams} streams: {chosen} of {best}");
        }
    }

    #[test]
    fn nothing_is_verified_before_steps_were_measured() {
        let mut drafting = Drafting::default();
        let mut one = vec![drafting.sequence()];
        assert_eq!(choose(&mut drafting, 1, &CostModel::default(), &mut one, 4), [0]);
    }
}
