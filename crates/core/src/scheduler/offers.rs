//! Draft tokens that proposers offer, and how many of them the next steps verify.

use std::collections::BTreeSet;

use super::Scheduler;
use crate::cost::{DraftLoad, StepLoad};
use crate::drafting::{Candidate, DraftKind, DraftOffer};
use crate::request::{SequenceId, Tick};
use crate::sequence::{Phase, Sequence};

impl Scheduler {
    /// Decides how many of the offered draft tokens the next steps verify: as many as make tokens faster, by how often
    /// drafts were accepted and by what rows cost. Call it after [`Self::commit`] with an offer for each sequence that got
    /// tokens, of zero tokens if there are none. While a sequence has draft tokens no step is planned ahead, since the next
    /// drafts follow from what is accepted.
    pub fn offer_drafts(&mut self, offers: &[DraftOffer]) {
        let drafts = |offer: &DraftOffer| self.sequences.get(offer.sequence).map_or(0, |of| of.drafts.tokens);
        if offers.iter().all(|offer| offer.tokens == 0 && drafts(offer) == 0) {
            return;
        }
        let (batch, load) = self.decode_load(offers);
        let Self { sequences, drafting, cost, settings, .. } = self;
        let known = offers.iter().filter_map(|offer| Some(sequences.get(offer.sequence)?.candidate(offer)));
        let candidates: Vec<Candidate<'_>> = known.collect();
        let chosen = drafting.choose(settings.tuning.drafts, (batch, load), cost, &candidates);
        let known = offers.iter().filter(|offer| sequences.get(offer.sequence).is_some());
        let chosen: Vec<(SequenceId, DraftKind, usize)> =
            known.zip(chosen).map(|(offer, tokens)| (offer.sequence, offer.kind, tokens)).collect();
        for (id, kind, tokens) in chosen {
            self.set_drafts(id, tokens, kind);
        }
    }

    /// Of offers for one sequence, the place of the one that makes tokens fastest. None if the sequence is not there.
    pub fn fastest_offer(&self, offers: &[DraftOffer]) -> Option<usize> {
        let known =
            offers.iter().filter_map(|offer| Some(self.sequences.get(offer.sequence)?.candidate(offer)));
        let candidates: Vec<Candidate<'_>> = known.collect();
        let mut with_tokens =
            candidates.iter().enumerate().filter(|(_, candidate)| candidate.tokens > 0).map(|(at, _)| at);
        match (with_tokens.next(), with_tokens.next()) {
            (Some(_), Some(_)) => self.drafting.fastest(self.decode_load(offers), &self.cost, &candidates),
            (Some(at), None) => Some(at),
            (None, _) => candidates.len().checked_sub(1),
        }
    }

    /// How many sequences the next step decodes, and its load without these offers.
    fn decode_load(&self, offers: &[DraftOffer]) -> (usize, StepLoad) {
        let offered: BTreeSet<SequenceId> = offers.iter().map(|offer| offer.sequence).collect();
        let (mut batch, mut load, mut prefill) = (0, StepLoad::default(), 0);
        for sequence in self.sequences.running() {
            let pending = sequence.expected() - sequence.computed;
            if pending == 1 {
                let drafts = if offered.contains(&sequence.id()) { 0 } else { sequence.drafts.tokens };
                batch += 1;
                load = load.plus(StepLoad::verify(sequence.computed, 1 + drafts));
            } else {
                let chunk = pending.min(self.settings.max_step_tokens - prefill);
                prefill += chunk;
                load = load.plus(StepLoad::prefill(sequence.computed, chunk));
            }
        }
        (batch, load)
    }

    /// How many draft tokens the next decode steps of a sequence verify, as far as there are tokens, blocks and state slots
    /// that no other sequence needs. Nothing happens to one that is not there.
    pub fn set_draft_tokens(&mut self, id: SequenceId, tokens: usize) {
        self.set_drafts(id, tokens, DraftKind::default());
    }

    /// A draft model took this time.
    pub fn learn_drafts(&mut self, load: DraftLoad, took: Tick) {
        self.cost.learn_drafts(load, took);
    }

    /// What a step costs more that is not planned ahead, in microseconds: a drafting batch has such steps alone.
    pub fn set_host_us(&mut self, host_us: f64) {
        self.drafting.host_us = host_us;
    }

    fn set_drafts(&mut self, id: SequenceId, tokens: usize, kind: DraftKind) {
        let Some(sequence) = self.sequences.get_mut(id) else { return };
        if sequence.drafts.tokens != tokens {
            self.version.0 += 1;
        }
        sequence.drafts.set(tokens, kind);
    }

    /// True while a running sequence has draft tokens.
    pub(super) fn is_drafting(&self) -> bool {
        self.sequences.running().any(|sequence| sequence.drafts.tokens > 0 && !sequence.is_finishing())
    }
}

impl Sequence {
    /// An offer, as far as there is room.
    fn candidate(&self, offer: &DraftOffer) -> Candidate<'_> {
        Candidate {
            tokens: offer.tokens.min(self.draft_room()),
            kind: offer.kind,
            work: offer.work,
            drafts: &self.drafts,
        }
    }

    /// How many draft tokens it can use at most once its last token is known.
    fn draft_room(&self) -> usize {
        if self.phase == Phase::Running { self.max_computed.saturating_sub(self.tokens.len()) } else { 0 }
    }
}
