//! Draft tokens of the sequences, from the step after which they were proposed to the one that verifies them.

use std::collections::BTreeMap;
use std::time::Duration;

use omnibus_core::{DraftOffer, SequenceId};

use super::proposer::{DraftContext, Proposal, Proposer};

/// The weight of the newest measurement in the time that a step costs more that is not planned ahead.
const HOST_GAIN: f64 = 0.1;
/// After a longer time the loop had nothing to do.
const HOST_TIME_MAX: Duration = Duration::from_millis(20);

/// A proposer, and what it proposed.
pub(super) struct Drafts {
    proposer: Box<dyn Proposer>,
    /// Most draft tokens of a sequence in a step.
    most: usize,
    /// For the next step of each sequence.
    next: BTreeMap<SequenceId, Vec<u32>>,
    /// What a step costs more that is not planned ahead, in microseconds.
    host_us: f64,
}

impl Drafts {
    pub(super) fn new(proposer: Box<dyn Proposer>, most: usize) -> Self {
        Self { proposer, most, next: BTreeMap::new(), host_us: 0.0 }
    }

    /// Most draft tokens of a sequence in a step.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// What a step costs more that is not planned ahead, in microseconds.
    pub(super) fn host_us(&self) -> f64 {
        self.host_us
    }

    /// The next `count` draft tokens of a sequence.
    pub(super) fn take(&mut self, sequence: SequenceId, count: usize) -> Vec<u32> {
        let mut drafts = if count > 0 { self.next.remove(&sequence).unwrap_or_default() } else { Vec::new() };
        // A wrong one costs its row.
        drafts.resize(count, 0);
        drafts
    }

    /// A sequence has ended.
    pub(super) fn remove(&mut self, sequence: SequenceId) {
        self.next.remove(&sequence);
        self.proposer.remove(sequence);
    }

    /// All sequences are gone. Their numbers will be those of others.
    pub(super) fn clear(&mut self) {
        self.next.clear();
        self.proposer.clear();
    }

    /// The device has waited so long for the next step, where it need not have.
    pub(super) fn add_host_time(&mut self, waited: Duration) {
        if waited < HOST_TIME_MAX {
            self.host_us += HOST_GAIN * (waited.as_secs_f64() * 1e6 - self.host_us);
        }
    }

    /// Asks the proposer, and keeps what it says for the next step.
    pub(super) fn propose(&mut self, context: &DraftContext<'_>) -> DraftOffer {
        let Proposal { tokens, kind } = self.proposer.propose(context);
        let offer = DraftOffer { sequence: context.sequence, tokens: tokens.len(), kind };
        self.next.insert(context.sequence, tokens);
        offer
    }
}
