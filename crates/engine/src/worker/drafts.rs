//! Draft tokens of the sequences, from the step after which they were proposed to the one that verifies them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use omnibus_core::{DraftLoad, DraftOffer, DraftWork, SequenceId};

use super::device_client::DeviceClient;
use super::proposer::{DraftContext, DraftTokens, Promised, Proposal, Proposer};

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
    next: BTreeMap<SequenceId, DraftTokens>,
    /// What a step costs more that is not planned ahead, in microseconds.
    host_us: f64,
    /// How long draft tokens of the next step took to compute.
    computing: Duration,
}

/// What computing draft tokens took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drafted {
    pub(super) load: DraftLoad,
    pub(super) took: Duration,
}

impl Drafts {
    pub(super) fn new(proposer: Box<dyn Proposer>, most: usize) -> Self {
        Self { proposer, most, next: BTreeMap::new(), host_us: 0.0, computing: Duration::ZERO }
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
        let next = if count > 0 { self.next.remove(&sequence) } else { None };
        let mut drafts = match next {
            Some(DraftTokens::Known(tokens)) => tokens,
            Some(DraftTokens::Promised(_)) | None => Vec::new(),
        };
        // A wrong one costs its row.
        drafts.resize(count, 0);
        drafts
    }

    /// Whether the draft tokens of a sequence have to be computed, or what they follow.
    pub(super) fn is_promised(&self, sequence: SequenceId) -> bool {
        matches!(self.next.get(&sequence), Some(DraftTokens::Promised(_)))
    }

    /// Computes what was promised to the sequences of a step. `None` if there is nothing to compute.
    pub(super) fn compute(
        &mut self,
        promised: &[Promised<'_>],
        device: &mut DeviceClient,
    ) -> mlx::Result<Option<Drafted>> {
        self.computing = Duration::ZERO;
        if promised.is_empty() {
            return Ok(None);
        }
        let started = Instant::now();
        let drafts = self.proposer.compute(promised, device)?;
        let rounds = drafts.iter().map(Vec::len).max().unwrap_or(0);
        let load = DraftLoad { rounds, rows: drafts.iter().map(Vec::len).sum() };
        for (of, tokens) in promised.iter().zip(drafts) {
            self.next.insert(of.sequence, DraftTokens::Known(tokens));
        }
        self.computing = started.elapsed();
        Ok(Some(Drafted { load, took: self.computing }))
    }

    /// A sequence has ended.
    pub(super) fn remove(&mut self, sequence: SequenceId) {
        self.next.remove(&sequence);
        self.proposer.remove(sequence);
    }

    /// All sequences and the KV cache are gone. Their numbers may be those of others.
    pub(super) fn clear(&mut self) {
        self.next.clear();
        self.proposer.clear();
    }

    /// The device has waited so long for the next step, where it need not have. That includes computing its draft tokens.
    pub(super) fn add_host_time(&mut self, waited: Duration) {
        let waited = waited.saturating_sub(self.computing);
        if waited < HOST_TIME_MAX {
            self.host_us += HOST_GAIN * (waited.as_secs_f64() * 1e6 - self.host_us);
        }
    }

    /// Asks the proposer, and keeps what it says for the next step: of known tokens as many as are `valid`.
    pub(super) fn propose(
        &mut self,
        context: &DraftContext<'_>,
        valid: impl FnOnce(&[u32]) -> usize,
    ) -> DraftOffer {
        let Proposal { mut tokens, kind } = self.proposer.propose(context);
        if let DraftTokens::Known(tokens) = &mut tokens
            && !tokens.is_empty()
        {
            tokens.truncate(valid(tokens));
        }
        let work = match tokens {
            DraftTokens::Known(_) => DraftWork::None,
            DraftTokens::Promised(_) => DraftWork::Model,
        };
        let offer = DraftOffer { sequence: context.sequence, tokens: tokens.len(), kind, work };
        self.next.insert(context.sequence, tokens);
        offer
    }
}
