//! A plan put into rows: which tokens, at which positions, over which blocks, sampled how.

use omnibus_core::{Plan, Scheduler, SequenceId, TokenSource};
use omnibus_model::Segment;

use crate::fault::RowFault;
use crate::message::Job;
use crate::sampler::needs_history;

/// The rows of one step, laid end to end in the plan's order.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Token of each row; for rows fed by the step before, an index into [`Rows::fed`] stands instead.
    pub(super) tokens: Vec<Feed>,
    pub(super) segments: Vec<Segment>,
    /// Rows whose logits are wanted, ascending.
    pub(super) logits_at: Vec<usize>,
    pub(super) samples: Vec<SampleRow>,
    pub(super) prompts: Vec<PromptRows>,
}

/// Where one row's token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feed {
    /// It is known.
    Token(u32),
    /// It is this row of the samples of the step in flight.
    Sample(usize),
}

/// One row that is sampled.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleRow {
    pub(super) sequence: SequenceId,
    /// Which of `logits_at` it is.
    pub(super) logits: usize,
    /// Position of the token that is drawn.
    pub(super) position: usize,
    /// What it draws depends on a token that is still in flight.
    pub(super) deferred: bool,
    /// What is to go wrong with it, in tests.
    pub(super) fault: Option<RowFault>,
}

/// Rows of a prompt that is to be scored.
#[derive(Debug, Clone)]
pub(super) struct PromptRows {
    pub(super) sequence: SequenceId,
    /// Which token of the prompt the first of `next` is.
    pub(super) first: usize,
    /// Which of `logits_at` the first of them is; they are consecutive.
    pub(super) logits: usize,
    /// The token that really follows each of them.
    pub(super) next: Vec<u32>,
    /// How many of the likeliest are wanted.
    pub(super) top: usize,
}

impl Rows {
    /// Reads the plan's rows off the scheduler, which has allocation it.
    pub(super) fn of<'a>(
        plan: &Plan,
        scheduler: &Scheduler,
        groups: usize,
        job: impl Fn(SequenceId) -> Option<&'a Job>,
    ) -> Self {
        let mut rows = Self::default();
        for work in &plan.scheduled {
            let Some(job) = job(work.sequence) else { continue };
            let first = rows.tokens.len();
            let known = scheduler.tokens(work.sequence);
            match work.input {
                TokenSource::Known => {
                    rows.tokens.extend(known[work.positions.clone()].iter().copied().map(Feed::Token))
                }
                TokenSource::InFlight { row, .. } => rows.tokens.push(Feed::Sample(row)),
            }
            let tables = (0..groups).map(|group| scheduler.block_table(work.sequence, group).clone());
            let prompt = job.prompt.len();
            rows.segments.push(Segment {
                first,
                len: work.positions.len(),
                context: work.positions.start,
                prompt,
                tables: tables.collect(),
            });
            if let Some(top) = job.prompt_logprobs.filter(|_| work.positions.start + 1 < prompt) {
                let scored = work.positions.start..work.positions.end.min(prompt - 1);
                let next = job.prompt[scored.start + 1..=scored.end].to_vec();
                rows.prompts.push(PromptRows {
                    sequence: work.sequence,
                    first: work.positions.start + 1,
                    logits: rows.logits_at.len(),
                    next,
                    top,
                });
                rows.logits_at.extend((0..scored.len()).map(|row| first + row));
            }
            if work.samples > 0 {
                rows.samples.push(SampleRow {
                    sequence: work.sequence,
                    logits: rows.logits_at.len(),
                    position: work.positions.end,
                    deferred: matches!(work.input, TokenSource::InFlight { .. })
                        && needs_history(&job.sampling),
                    fault: None,
                });
                rows.logits_at.push(first + work.positions.len() - 1);
            }
        }
        rows
    }
}
