//! The input of one step, from the loop to the runner: tokens, segments, block copies, and changes of sampling state.
//!
//! Invariant: plain serializable values. Nothing else of a step reaches the runner, so runners that get the same inputs
//! in the same order compute the same bits.

use omnibus_core::{BlockCopy, PlanId, ScheduledSequence, Scheduler, SequenceId, TokenSource};
use omnibus_kv::BlockTable;
use omnibus_model::mrope::MultimodalPositions;
use omnibus_model::{SpanRuns, UnattendedRows, span_reach};
use serde::{Deserialize, Serialize};

use crate::alignment::Alignment;
use crate::hidden::HiddenPositions;
use crate::media::{JobMedia, MediaKey, crossed_in};
use crate::sampler::{SampleRow, SamplingChanges};
use crate::worker::rows::Rows;

/// One step: rows of several sequences, end to end in the plan's order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StepInput {
    /// Applied before the step.
    pub(super) changes: SamplingChanges,
    /// Blocks to copy before anything is written.
    pub(super) copies: Vec<BlockCopy>,
    /// Each row's token.
    pub(super) tokens: Vec<InputToken>,
    pub(super) segments: Vec<InputSegment>,
    /// Rows that need logits, ascending.
    pub(super) logits_at: Vec<usize>,
    pub(super) samples: Vec<SampleRow>,
    pub(super) prompts: Vec<PromptRows>,
    /// Rows whose hidden states are reported, in order.
    pub(super) hidden: Vec<ReportedRows>,
    /// Tokens whose logits are reported, of rows that have logits.
    pub(super) token_logits: Vec<TokenLogitRow>,
    /// Rows with features in place of their token's embedding.
    pub(super) media: Vec<MediaRows>,
    /// Rows that attend to each other in both directions.
    pub(super) spans: Vec<SpanRuns>,
    /// Of segments of sequences with tokens that no row attends to.
    pub(super) unattended: Vec<UnattendedRows>,
    /// Rows that attend to pictures in layers of cross attention, in order.
    pub(super) crossed: Vec<CrossedRows>,
    /// Positions of the rows on three axes; `None` where each row is at its place in its sequence.
    pub(super) positions: Option<Vec<[i32; 3]>>,
    /// What the stage before gave of all rows; `None` for the first stage.
    pub(super) stream: Option<Rows>,
}

/// Consecutive rows that have consecutive features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MediaRows {
    /// Whose features.
    pub(super) key: MediaKey,
    /// The first row of the pass.
    pub(super) first: usize,
    /// How many rows.
    pub(super) len: usize,
    /// The first of the features.
    pub(super) from: usize,
}

/// Consecutive rows that attend to the same pictures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CrossedRows {
    /// Whose features, one after the other.
    pub(super) keys: Vec<MediaKey>,
    /// The first row of the pass.
    pub(super) first: usize,
    /// How many rows.
    pub(super) len: usize,
    /// What is reported of them.
    pub(super) aligned: Option<AlignedRows>,
}

/// Rows of which it is reported what they attend to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AlignedRows {
    pub(super) sequence: SequenceId,
    /// Position of the first row.
    pub(super) first: usize,
    pub(super) alignment: Alignment,
}

/// A row's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum InputToken {
    Known(u32),
    /// This row of the samples of the step before, which is still in flight.
    Sampled(usize),
    /// What was drafted last for this segment in this round, and not read.
    Drafted {
        segment: usize,
        round: usize,
    },
}

/// One sequence's consecutive rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InputSegment {
    pub(super) sequence: SequenceId,
    /// Its first row.
    pub(super) first: usize,
    /// How many rows.
    pub(super) len: usize,
    /// Position of its first row.
    pub(super) context: usize,
    /// Tokens of its prompt.
    pub(super) prompt: usize,
    /// How many of its rows, the last ones, are sampled.
    pub(super) samples: usize,
    /// Its adapter; zero for none.
    pub(super) adapter: u128,
    /// Whether a draft head reads the hidden states of its rows.
    pub(super) keeps_states: bool,
    /// Its blocks, one table for each layer group. The state after the `i`-th sampled row goes to the `i`-th slot.
    pub(super) tables: Vec<BlockTable>,
}

/// Rows of a prompt whose log-probabilities were requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PromptRows {
    pub(super) sequence: SequenceId,
    /// Position of the first of `next`.
    pub(super) first: usize,
    /// Row of the step's logits of the first of them; they are consecutive.
    pub(super) logits: usize,
    /// The token that follows each row.
    pub(super) next: Vec<u32>,
    /// How many of the most likely tokens were requested.
    pub(super) top: usize,
}

/// Consecutive rows of a prompt whose hidden states were requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReportedRows {
    pub(super) sequence: SequenceId,
    /// Position of the first of them.
    pub(super) position: usize,
    /// The first row of the pass.
    pub(super) first: usize,
    /// How many rows.
    pub(super) len: usize,
    pub(super) report: RowReport,
}

/// What is reported of consecutive rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RowReport {
    /// Their states.
    States,
    /// Of each token of the vocabulary the largest logit over them.
    LargestLogits,
}

/// A row of which logits of some tokens were requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenLogitRow {
    pub(super) sequence: SequenceId,
    /// The row of the step's logits.
    pub(super) logits: usize,
    pub(super) tokens: Vec<u32>,
}

/// What the loop knows of a scheduled sequence's request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestRows<'a> {
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    pub(super) prompt_logprobs: Option<usize>,
    /// The first token whose log-probability is reported.
    pub(super) logprob_start: usize,
    pub(super) hidden: Option<HiddenPositions>,
    pub(super) token_logits: &'a [u32],
    pub(super) unattended: usize,
    /// As in [`omnibus_core::Request::adapter`].
    pub(super) adapter: u128,
    /// As in [`InputSegment`].
    pub(super) keeps_states: bool,
}

/// The draft tokens that a sequence's rows verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowDrafts {
    Known(Vec<u32>),
    /// So many of this segment, which are not read.
    OnDevice {
        segment: usize,
        count: usize,
    },
}

impl RowDrafts {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Known(tokens) => tokens.len(),
            Self::OnDevice { count, .. } => *count,
        }
    }

    fn tokens(&self) -> Vec<InputToken> {
        match self {
            Self::Known(tokens) => tokens.iter().copied().map(InputToken::Known).collect(),
            Self::OnDevice { segment, count } => {
                (0..*count).map(|round| InputToken::Drafted { segment: *segment, round }).collect()
            }
        }
    }

    /// Drafts that are read with the step's results are no tokens until then: none of them is accepted.
    pub(super) fn into_tokens(self) -> Vec<u32> {
        match self {
            Self::Known(tokens) => tokens,
            Self::OnDevice { count, .. } => vec![u32::MAX; count],
        }
    }
}

impl StepInput {
    /// Adds a scheduled sequence's rows. Its plan has been applied. `drafts`: its draft tokens. `row_of`: the row of a step
    /// in flight that holds a sample. Fails if that step is not the one before.
    pub(super) fn push(
        &mut self,
        work: &ScheduledSequence,
        scheduler: &Scheduler,
        request: RequestRows<'_>,
        drafts: &RowDrafts,
        row_of: impl Fn(PlanId, usize) -> Option<usize>,
    ) -> mlx::Result<()> {
        let (first, known) = (self.tokens.len(), scheduler.tokens(work.sequence));
        match work.input {
            TokenSource::Known => {
                let positions = work.positions.start..work.positions.end - drafts.len();
                let tokens = known.get(positions).unwrap_or_default();
                self.tokens.extend(tokens.iter().copied().map(InputToken::Known).chain(drafts.tokens()));
            }
            TokenSource::InFlight { plan, row } => {
                let message =
                    || format!("a token is a sample of step {}, which is not the one before", plan.0);
                let row = row_of(plan, row).ok_or_else(|| mlx::Error::new(message()))?;
                self.tokens.push(InputToken::Sampled(row));
            }
        }
        let groups = 0..scheduler.settings().groups.len();
        self.segments.push(InputSegment {
            sequence: work.sequence,
            first,
            len: work.positions.len(),
            context: work.positions.start,
            prompt: request.prompt,
            samples: work.samples,
            adapter: request.adapter,
            keeps_states: request.keeps_states,
            tables: groups.map(|group| scheduler.block_table(work.sequence, group).clone()).collect(),
        });
        if request.unattended > 0 {
            let (rows, from) = (
                first..first + work.positions.len(),
                request.prompt - request.unattended.min(request.prompt),
            );
            self.unattended.push(UnattendedRows { rows, from });
        }
        self.push_prompt_rows(work, known, request);
        self.push_hidden(work, first, request);
        self.push_token_logits(work, first, request);
        for before_last in (0..work.samples).rev() {
            let (logits, position) = (self.logits_at.len(), work.positions.end - before_last);
            self.samples.push(SampleRow { sequence: work.sequence, position, logits });
            self.logits_at.push(first + work.positions.len() - 1 - before_last);
        }
        Ok(())
    }

    /// Adds the features and the positions of the rows that were pushed last. `spans`: positions of the prompt that attend
    /// to each other; `positions`: of a prompt with media.
    pub(super) fn push_media(
        &mut self,
        work: &ScheduledSequence,
        (media, alignment): (&[JobMedia], Option<&Alignment>),
        spans: &[SpanRuns],
        positions: Option<&MultimodalPositions>,
    ) {
        let first = self.segments.last().map_or(0, |segment| segment.first);
        let row = |at: usize| first + at - work.positions.start;
        let is_within = |span: &&SpanRuns| {
            let span = span_reach(span);
            work.positions.start <= span.start && span.end <= work.positions.end
        };
        let rows = |span: &SpanRuns| span.iter().map(|run| row(run.start)..row(run.end)).collect();
        self.spans.extend(spans.iter().filter(is_within).map(rows));
        for (positions, keys) in crossed_in(media, &work.positions) {
            let (first, at) = (first + positions.start - work.positions.start, positions.start);
            let aligned =
                |of: &Alignment| AlignedRows { sequence: work.sequence, first: at, alignment: of.clone() };
            let aligned = alignment.map(aligned);
            self.crossed.push(CrossedRows { keys, first, len: positions.len(), aligned });
        }
        for of in media.iter().filter(|media| !media.is_crossed()) {
            let rows = of.rows_in(&work.positions).into_iter().map(|(at, from)| MediaRows {
                key: of.key,
                first: row(at.start),
                len: at.len(),
                from,
            });
            self.media.extend(rows);
        }
        if positions.is_none() && self.positions.is_none() {
            return;
        }
        let axes = self.positions.get_or_insert_default();
        // Rows before the first that needs them are at their places.
        for segment in &self.segments {
            let done = axes.len().saturating_sub(segment.first).min(segment.len);
            let of = positions.filter(|_| segment.first == first);
            axes.extend((segment.context + done..segment.context + segment.len).map(|place| match of {
                Some(positions) => positions.at(place),
                None => [place as i32; 3],
            }));
        }
    }

    fn push_hidden(&mut self, work: &ScheduledSequence, first: usize, request: RequestRows<'_>) {
        let end = work.positions.end.min(request.prompt);
        let position = match request.hidden {
            None => return,
            Some(HiddenPositions::All | HiddenPositions::Vocabulary) => work.positions.start,
            Some(HiddenPositions::Last) => work.positions.start.max(request.prompt.saturating_sub(1)),
        };
        if position < end {
            let first = first + position - work.positions.start;
            let report = match request.hidden {
                Some(HiddenPositions::Vocabulary) => RowReport::LargestLogits,
                _ => RowReport::States,
            };
            let rows = ReportedRows { sequence: work.sequence, position, first, len: end - position, report };
            self.hidden.push(rows);
        }
    }

    fn push_token_logits(&mut self, work: &ScheduledSequence, first: usize, request: RequestRows<'_>) {
        let last = request.prompt.saturating_sub(1);
        if request.token_logits.is_empty() || !work.positions.contains(&last) {
            return;
        }
        let (sequence, tokens) = (work.sequence, request.token_logits.to_vec());
        self.token_logits.push(TokenLogitRow { sequence, logits: self.logits_at.len(), tokens });
        self.logits_at.push(first + last - work.positions.start);
    }

    fn push_prompt_rows(&mut self, work: &ScheduledSequence, known: &[u32], request: RequestRows<'_>) {
        let Some(top) = request.prompt_logprobs else { return };
        let start = work.positions.start.max(request.logprob_start.saturating_sub(1));
        let end = work.positions.end.min(request.prompt.saturating_sub(1));
        let Some(next) = known.get(start + 1..end + 1).filter(|next| !next.is_empty()) else { return };
        let first_row = self.segments.last().map_or(0, |segment| segment.first);
        self.prompts.push(PromptRows {
            sequence: work.sequence,
            first: start + 1,
            logits: self.logits_at.len(),
            next: next.to_vec(),
            top,
        });
        let before = start - work.positions.start;
        self.logits_at.extend((before..before + end - start).map(|row| first_row + row));
    }
}
