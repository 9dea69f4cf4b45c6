//! Work beside steps: how much of it fits before the next one, and for which sequence.
//!
//! The content that some tokens of a prompt stand for is encoded before its prefill. The engine does that in parts of
//! similar cost, between steps, while the sequence is held in the queue. A part is a number of units, which the engine
//! chooses so that equally many take about equally long.
//!
//! Invariant: beside decoding sequences, encoding takes time that none of them needs for its next token in time. If that is
//! never enough for a part, one in [`STARVED_STEPS`] steps is followed by one part, so that encoding ends.

use super::{Scheduler, fair};
use crate::cost::StepLoad;
use crate::request::{Class, SequenceId, Tick};
use crate::sequence::{Hold, HoldReason, Phase, Sequence};

/// Steps without a part after which one follows whatever the time.
const STARVED_STEPS: u32 = 8;
/// How long it takes between two steps at most, and one part at least, while no sequence decodes: prefills go on, and
/// commands are taken.
const ALONE_US: f64 = 5e4;
/// Weight of the newest measurement, where it is below what is expected. One above it counts at once.
const NEWEST: f64 = 0.2;
/// Units at once, beside decoding sequences, as a multiple of the most so far: what few cost says little of many.
const GROWTH: u64 = 2;

/// How long encoding takes, and how long it waited.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct EncodingCost {
    /// Expected microseconds of a unit; `None` before the first measurement.
    us_per_unit: Option<f64>,
    /// Most units that were measured at once.
    most_units: u64,
    /// Consecutive steps after which no part fitted.
    starved_steps: u32,
}

impl Scheduler {
    /// Of the sequences that wait for their content to be encoded, the first in line.
    pub fn next_encoding(&self) -> Option<SequenceId> {
        let mut held = self.sequences.waiting().held().map(|rank| &self.sequences[rank.id]);
        let is_held = |sequence: &Sequence, reason| sequence.hold(reason) == Hold::Now;
        // What is being read may have their content.
        let next = held.find(|sequence| {
            is_held(sequence, HoldReason::Encoding) && !is_held(sequence, HoldReason::Transfer)
        });
        next.map(Sequence::id)
    }

    /// Leading tokens of a waiting sequence that are cached. Zero for others.
    pub fn cached_tokens(&self, id: SequenceId) -> usize {
        let Some(sequence) = self.sequences.get(id).filter(|sequence| sequence.phase == Phase::Waiting)
        else {
            return 0;
        };
        let (kv_cache, cache) = (&self.kv_cache, &sequence.cache);
        let most = sequence.reusable_tokens().len() / kv_cache.block_size();
        let found = kv_cache.longest_usable_hit(cache, most);
        let partial = kv_cache.longest_partial_hit(cache, sequence.reusable_tokens(), found);
        found * kv_cache.block_size() + partial.map_or(0, |partial| partial.tokens)
    }

    /// How many of the next `parts` parts of encoding, of so many units each, to compute before the next step. Call it once
    /// between two steps.
    pub fn parts_beside_steps(&mut self, now: Tick, parts: usize, units: u64) -> usize {
        if parts == 0 {
            return 0;
        }
        let decoding_us = self.time_beside_steps(now);
        let left_us = decoding_us.unwrap_or(ALONE_US);
        let part_us = self.encoding.us_per_unit.map(|us| us * units as f64 * fair::margins(&self.cost));
        let fitting = part_us.map_or(0, |us| (left_us.max(0.0) / us.max(1.0)) as usize).min(parts);
        if decoding_us.is_none() {
            return fitting.max(1);
        }
        let most = GROWTH * self.encoding.most_units / units.max(1);
        let fitting = fitting.min(most.max(1) as usize);
        self.encoding.starved_steps = if fitting > 0 { 0 } else { self.encoding.starved_steps + 1 };
        if self.encoding.starved_steps < STARVED_STEPS && (fitting > 0 || part_us.is_some()) {
            return fitting;
        }
        self.encoding.starved_steps = 0;
        fitting.max(1)
    }

    /// Learns how long some units of encoding took.
    pub fn learn_encoding(&mut self, units: u64, took: Tick) {
        let us = took as f64 / units.max(1) as f64;
        let known = self.encoding.us_per_unit;
        let expected = known.map_or(us, |known| (known + NEWEST * (us - known)).max(us));
        self.encoding.us_per_unit = Some(expected);
        self.encoding.most_units = self.encoding.most_units.max(units);
    }

    /// Microseconds that can pass before the next step, without one of the decoding online sequences getting its next token
    /// late. `None` if none decodes.
    fn time_beside_steps(&self, now: Tick) -> Option<f64> {
        let is_online = |sequence: &&Sequence| sequence.class() == Class::Online && !sequence.is_finishing();
        let decoding =
            || self.sequences.running().filter(is_online).filter(|sequence| sequence.is_decoding());
        let load = |sequence: &Sequence| {
            StepLoad::verify(sequence.computed, sequence.pending().max(1) + sequence.drafts())
        };
        let next = decoding().map(load).fold(StepLoad::default(), StepLoad::plus);
        let last = decoding().map(|sequence| sequence.token_at).min()?;
        let tpot = fair::tpot(self, &next);
        let step = self.cost.predict(&next) * fair::margins(&self.cost);
        // Time may have jumped back since the last token.
        let since = now.saturating_sub(last) as f64;
        Some(tpot - since - step)
    }
}
