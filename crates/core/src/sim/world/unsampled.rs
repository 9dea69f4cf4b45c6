//! Tokens that a world's engine has without sampling: draft tokens, and forced ones.

use super::World;
use crate::cost::DraftLoad;
use crate::drafting::{DraftKind, DraftOffer, DraftPolicy, DraftWork};
use crate::outcome::Stop;
use crate::plan::Plan;
use crate::random::mix;
use crate::request::{SequenceId, Tick};
use crate::sim::MeasuredDrafts;
use crate::sim::clients::Excuses;

impl World<'_> {
    /// How long the draft model takes before a step.
    pub(super) fn draft(&mut self, plan: &Plan) -> Tick {
        let Some(drafts) = &self.scenario.drafts else { return 0 };
        let load = drafts.load(plan);
        let took = self.scenario.machine.of_drafts(load);
        self.scheduler.learn_drafts(load, took);
        took
    }

    /// Proposers have draft tokens for some of the sequences that got tokens.
    pub(super) fn offer_drafts(&mut self, ids: &[SequenceId]) {
        let scenario = self.scenario;
        match &scenario.drafts {
            Some(drafts) => self.offer_measured(drafts, ids),
            None => self.offer_any(ids),
        }
        self.scheduler.audit();
    }

    fn offer_measured(&mut self, drafts: &MeasuredDrafts, ids: &[SequenceId]) {
        let (live, rng) = (ids.iter().filter(|id| self.clients.is_live(**id)), &mut self.rng);
        let offer = |id: &SequenceId| DraftOffer {
            sequence: *id,
            tokens: drafts.offer(rng),
            kind: DraftKind::default(),
            work: drafts.work,
        };
        let offers: Vec<DraftOffer> = live.map(offer).collect();
        self.scheduler.offer_drafts(&offers);
    }

    fn offer_any(&mut self, ids: &[SequenceId]) {
        let offers: Vec<DraftOffer> = ids
            .iter()
            .filter(|id| self.clients.is_live(**id))
            .filter_map(|id| {
                let most = self.scripts[self.clients.script(*id)].arrival.draft_tokens;
                let chance = mix(self.scheduler.tokens(*id).len() as u64 ^ id.0 << 20);
                let tokens = match self.scenario.settings.tuning.drafts {
                    DraftPolicy::All => most,
                    DraftPolicy::Adaptive => chance as usize % (most + 1),
                };
                let kind = DraftKind((chance >> 32) as u8 % 3);
                let copied = DraftOffer { sequence: *id, tokens, kind, work: DraftWork::None };
                let model = DraftOffer { tokens: most, kind: DraftKind(3), work: DraftWork::Model, ..copied };
                let offers = [copied, model];
                let fastest = match self.scenario.settings.tuning.drafts {
                    DraftPolicy::All => 0,
                    DraftPolicy::Adaptive => self.scheduler.fastest_offer(&offers)?,
                };
                offers.get(fastest).filter(|_| most > 0).copied()
            })
            .collect();
        let rounds = offers.iter().filter(|offer| offer.work == DraftWork::Model).map(|offer| offer.tokens);
        if let Some(rounds) = rounds.max() {
            self.scheduler.learn_drafts(DraftLoad { rounds, rows: rounds }, 300 * rounds as u64);
        }
        self.scheduler.offer_drafts(&offers);
    }

    /// The next tokens of a sequence follow without being sampled, up to its end or its limit.
    pub(super) fn force(&mut self, id: SequenceId) {
        let faults = &self.scenario.faults;
        if faults.force_one_in == 0 || faults.drafts_one_in > 0 || !self.clients.is_live(id) {
            return;
        }
        let script = &self.scripts[self.clients.script(id)];
        let known = self.scheduler.tokens(id).len();
        let chance = mix(known as u64 ^ id.0 << 20);
        if script.arrival.draft_tokens > 0 || !chance.is_multiple_of(faults.force_one_in) {
            return;
        }
        let end = (known + 1 + (chance >> 32) as usize % 12).min(script.tokens.len() - 1);
        let last = (known..end).find(|at| script.stop(*at) == Stop::Yes);
        let (end, stop) = last.map_or((end, Stop::No), |last| (last + 1, Stop::Yes));
        if end <= known {
            return;
        }
        let tokens = script.tokens[known..end].to_vec();
        let events = self.scheduler.force(id, &tokens, stop);
        assert_eq!(events.len(), tokens.len() + usize::from(stop == Stop::Yes), "one event for each");
        self.device.supersede(id);
        self.send(events, &Excuses { row: false, steps: false });
        self.scheduler.audit();
    }
}
