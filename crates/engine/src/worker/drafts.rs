//! Draft tokens of the sequences, from the step after which they were proposed to the one that verifies them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use omnibus_core::{DraftLoad, DraftOffer, DraftWork, SequenceId};

use super::device_call::DraftRead;
use super::device_client::DeviceClient;
use super::measured_calls::MeasuredCalls;
use super::outcome::AnswerPlace;
use super::proposer::{DraftContext, DraftTokens, Promised, Proposal, Proposer};
use super::step_input::RowDrafts;
use crate::message::TokenLogprobs;
use crate::speculation::DraftOutcome;

/// The weight of the newest measurement in the time that a step costs more that is not planned ahead.
const HOST_GAIN: f64 = 0.1;
/// After a longer time the loop had nothing to do.
const HOST_TIME_MAX: Duration = Duration::from_millis(20);

/// Proposers, and what they proposed.
pub(super) struct Drafts {
    proposers: Vec<Box<dyn Proposer>>,
    /// Most draft tokens of a sequence in a step.
    most: usize,
    /// For the next step of each sequence.
    next: BTreeMap<SequenceId, NextDraft>,
    /// What a step costs more that is not planned ahead, in microseconds.
    host_us: f64,
    /// How long draft tokens of the next step took to compute.
    computing: Duration,
    /// What decides whether they are accepted.
    outcome: DraftOutcome,
    calls: MeasuredCalls,
    /// Whether a step failed whose draft tokens were not read before: a proposer that fails must fail alone.
    reads_all: bool,
}

/// The draft tokens of a sequence's next step.
struct NextDraft {
    /// Which proposer has them.
    proposer: usize,
    tokens: NextTokens,
}

/// Draft tokens of a next step.
enum NextTokens {
    Promised,
    Computed(RowDrafts),
}

/// What computing draft tokens took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drafted {
    pub(super) load: DraftLoad,
    /// `None` where that is no measure, and where they are read with the step.
    pub(super) took: Option<Duration>,
    pub(super) read: DraftRead,
}

impl Drafts {
    pub(super) fn new(proposers: Vec<Box<dyn Proposer>>, most: usize) -> Self {
        Self {
            proposers,
            most,
            next: BTreeMap::new(),
            host_us: 0.0,
            computing: Duration::ZERO,
            outcome: DraftOutcome::Sampled,
            calls: MeasuredCalls::default(),
            reads_all: false,
        }
    }

    /// With something else than what is sampled to decide whether they are accepted.
    pub(super) fn with_outcome(self, outcome: &DraftOutcome) -> Self {
        Self { outcome: outcome.clone(), ..self }
    }

    /// Changes what was sampled for a sequence to what counts as sampled.
    pub(super) fn decide(&self, place: AnswerPlace<'_>, drafts: &[u32], rows: &mut [Option<TokenLogprobs>]) {
        self.outcome.decide(place, drafts, rows);
    }

    /// What the client expects of an answer, as far as a proposer may know it.
    pub(super) fn prediction<'a>(&self, prediction: &'a [u32]) -> &'a [u32] {
        match self.outcome {
            DraftOutcome::Sampled | DraftOutcome::Synthetic(_) => prediction,
            DraftOutcome::Recorded => &[],
        }
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
    pub(super) fn take(&mut self, sequence: SequenceId, count: usize) -> RowDrafts {
        let next = if count > 0 { self.next.remove(&sequence) } else { None };
        let mut tokens = match next.map(|next| next.tokens) {
            Some(NextTokens::Computed(drafts @ RowDrafts::OnDevice { .. })) if drafts.len() == count => {
                return drafts;
            }
            Some(NextTokens::Computed(RowDrafts::Known(tokens))) => tokens,
            Some(NextTokens::Computed(RowDrafts::OnDevice { .. }) | NextTokens::Promised) | None => {
                Vec::new()
            }
        };
        // A wrong one costs its row.
        tokens.resize(count, 0);
        RowDrafts::Known(tokens)
    }

    /// A step failed whose draft tokens were not read before.
    pub(super) fn read_all(&mut self) {
        self.reads_all = true;
    }

    /// Computes what was promised to the sequences of a step, of which all are given that may draft. `read`: when their tokens have
    /// to be known at the latest. `None` if nothing was computed.
    pub(super) fn compute(
        &mut self,
        promised: &[Promised<'_>],
        read: DraftRead,
        device: &mut DeviceClient,
    ) -> mlx::Result<Option<Drafted>> {
        self.computing = Duration::ZERO;
        if promised.is_empty() {
            return Ok(None);
        }
        let started = Instant::now();
        let read = if self.reads_all || self.calls.is_next() { DraftRead::Now } else { read };
        let (mut load, mut built) = (DraftLoad::default(), false);
        for (proposer, of) in self.proposers.iter_mut().enumerate() {
            let next = &self.next;
            let has_promised = |of: &Promised<'_>| {
                let next = next.get(&of.sequence);
                next.is_some_and(|next| {
                    next.proposer == proposer && matches!(next.tokens, NextTokens::Promised)
                })
            };
            let count = |of: &Promised<'_>| if has_promised(of) { of.count } else { 0 };
            let own: Vec<Promised<'_>> =
                promised.iter().map(|of| Promised { count: count(of), ..of.clone() }).collect();
            let computed = of.compute(&own, read, device)?;
            load.rounds += computed.load.rounds;
            load.rows += computed.load.rows;
            built |= computed.built;
            let drafted = own.iter().zip(computed.drafts).filter(|(of, _)| of.count > 0);
            for (of, tokens) in drafted {
                self.next.insert(of.sequence, NextDraft { proposer, tokens: NextTokens::Computed(tokens) });
            }
        }
        if load == DraftLoad::default() {
            return Ok(None);
        }
        self.computing = started.elapsed();
        let took = (!built && read == DraftRead::Now).then_some(self.computing);
        self.calls.add(took.is_some());
        Ok(Some(Drafted { load, took, read }))
    }

    /// Whether the step whose drafts were computed last leaves hidden states on the device.
    pub(super) fn keeps_states(&self) -> bool {
        self.proposers.iter().any(|proposer| proposer.keeps_states())
    }

    /// A sequence has ended.
    pub(super) fn remove(&mut self, sequence: SequenceId) {
        self.next.remove(&sequence);
        self.proposers.iter_mut().for_each(|proposer| proposer.remove(sequence));
    }

    /// All sequences and the KV cache are gone. Their numbers may be those of others.
    pub(super) fn clear(&mut self) {
        self.next.clear();
        self.proposers.iter_mut().for_each(|proposer| proposer.clear());
    }

    /// So long passed between a step's results and the launch of the next, where that might have been launched before. That includes
    /// computing its draft tokens.
    pub(super) fn add_host_time(&mut self, waited: Duration) {
        let waited = waited.saturating_sub(self.computing);
        if waited < HOST_TIME_MAX {
            self.host_us += HOST_GAIN * (waited.as_secs_f64() * 1e6 - self.host_us);
        }
    }

    /// Asks the proposers, and keeps what the `fastest` of their offers has for the next step: of known tokens as many as are
    /// `valid`. `None` if the sequence has no offer.
    pub(super) fn propose(
        &mut self,
        context: &DraftContext<'_>,
        mut valid: impl FnMut(&[u32]) -> usize,
        fastest: impl FnOnce(&[DraftOffer]) -> Option<usize>,
    ) -> Option<DraftOffer> {
        let (mut offers, mut proposed) = (Vec::new(), Vec::new());
        for proposer in &mut self.proposers {
            let Proposal { mut tokens, kind } = proposer.propose(context);
            if let DraftTokens::Known(tokens) = &mut tokens
                && !tokens.is_empty()
            {
                tokens.truncate(valid(tokens));
            }
            let work = match tokens {
                DraftTokens::Known(_) => DraftWork::None,
                DraftTokens::Promised(_) => DraftWork::Model,
            };
            offers.push(DraftOffer { sequence: context.sequence, tokens: tokens.len(), kind, work });
            proposed.push(tokens);
        }
        let proposer = fastest(&offers)?;
        let tokens = match proposed.into_iter().nth(proposer)? {
            DraftTokens::Known(tokens) => NextTokens::Computed(RowDrafts::Known(tokens)),
            DraftTokens::Promised(_) => NextTokens::Promised,
        };
        self.next.insert(context.sequence, NextDraft { proposer, tokens });
        offers.get(proposer).copied()
    }
}
