//! The sampling parameters of a step's rows as arrays, kept while the rows' sequences stay the same.
//!
//! A token is chosen by inverting the cumulative distribution, in the order of token ids, at one uniform number.
//! Temperature and filters follow vLLM's order (docs/decisions/0011): temperature, `min_p`, `top_k`, then `top_p` over what
//! the others keep.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mlx::{Array, Dtype};
use omnibus_core::SequenceId;

use super::adjustments::{AdjustmentArrays, EntryReader, LogitAdjustments};
use super::drafted::DraftedTokens;
use super::kernel_rows::{KernelRows, RowEdits};
use super::masks::MaskArrays;
use super::random::uniform;
use super::state::SequenceState;
use super::xtc::{XtcArrays, XtcParameters};
use super::{Chooser, PendingSample, SampleRow};
use crate::request::Sampling;
use crate::sampler::logprobs::PendingLogprobs;

/// The sampling parameters of a step's rows.
pub(super) struct SamplingBatch {
    /// The rows' sequences, in order.
    members: Vec<SequenceId>,
    of: LogitsOf,
    choice: Choice,
    xtc: Option<XtcParameters>,
    logprobs: Vec<Option<usize>>,
    /// Tokens of each row whose log-probabilities are reported.
    logprob_token_ids: Vec<Vec<u32>>,
    /// The rows' adjustments, and the versions that they are from.
    adjustments: Option<(Vec<u64>, Option<AdjustmentArrays>)>,
}

/// Which model's logits are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogitsOf {
    /// The target model's: rows that are shaped have everything done but the drawing.
    Target,
    /// A draft model's, which are not shaped.
    DraftModel,
}

impl LogitsOf {
    fn sampling(self, state: &SequenceState) -> Cow<'_, Sampling> {
        match self {
            Self::Target => state.drawn(),
            Self::DraftModel => Cow::Borrowed(&state.sampling),
        }
    }

    /// `None` for a row whose logits are adjusted already.
    fn adjustments(self, state: &SequenceState) -> Option<&LogitAdjustments> {
        let adjusted = self == Self::Target && state.shaping.is_some();
        (!adjusted).then_some(&state.adjustments)
    }
}

/// How tokens are chosen.
enum Choice {
    /// By one kernel.
    Kernel(KernelRows),
    /// By MLX's operations.
    Operations(Groups),
}

/// Rows by how much work their choice is.
struct Groups {
    groups: Vec<Group>,
    /// Each row's index in the concatenation of the groups; `None` if the rows are in order.
    order: Option<Array>,
}

/// How much work a row's choice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The most likely token.
    Greedy,
    /// A temperature and no filter.
    Plain,
    /// Filters: the row is sorted.
    Filtered,
}

impl Kind {
    fn of(sampling: &Sampling) -> Self {
        let filters = sampling.top_k > 0 || sampling.top_p < 1.0 || sampling.min_p > 0.0;
        let filtered = filters || sampling.xtc_probability > 0.0;
        match (sampling.temperature == 0.0 || sampling.top_k == 1, filtered) {
            (true, _) => Self::Greedy,
            (false, false) => Self::Plain,
            (false, true) => Self::Filtered,
        }
    }
}

/// Rows of one kind. The arrays are `[n, 1]`.
struct Group {
    kind: Kind,
    /// Which rows of the step.
    rows: Vec<usize>,
    /// `rows` as an array; `None` if it is all rows.
    indices: Option<Array>,
    seeds: Vec<u64>,
    temperature: Array,
    top_k: Array,
    top_p: Array,
    min_p: Array,
}

impl SamplingBatch {
    /// Rows of sequences that have ended are greedy; their tokens are dropped.
    pub(super) fn new(
        rows: &[SampleRow],
        states: &BTreeMap<SequenceId, SequenceState>,
        (chooser, of): (Chooser, LogitsOf),
    ) -> mlx::Result<Self> {
        let greedy = Sampling::greedy();
        let sampling_of = |row: &SampleRow| {
            states.get(&row.sequence).map_or(Cow::Borrowed(&greedy), |state| of.sampling(state))
        };
        let sampling: Vec<Cow<'_, Sampling>> = rows.iter().map(sampling_of).collect();
        let sampling: Vec<&Sampling> = sampling.iter().map(AsRef::as_ref).collect();
        let kept = |row: &SampleRow| states.get(&row.sequence).map_or(&[][..], |state| &state.xtc_kept);
        let of_rows: Vec<(&Sampling, &[u32])> = sampling.iter().copied().zip(rows.iter().map(kept)).collect();
        let xtc = XtcParameters::new(&of_rows)?;
        // Only the CPU's kernel excludes tokens.
        let in_operations = chooser == Chooser::Operations || (xtc.is_some() && !mlx::cpu::available());
        let choice = match in_operations {
            false => Choice::Kernel(KernelRows::new(&sampling)?),
            true => Choice::Operations(Groups::new(&sampling)?),
        };
        Ok(Self {
            members: rows.iter().map(|row| row.sequence).collect(),
            of,
            choice,
            xtc,
            logprobs: rows
                .iter()
                .map(|row| states.get(&row.sequence).and_then(|state| state.logprobs))
                .collect(),
            logprob_token_ids: rows
                .iter()
                .map(|row| states.get(&row.sequence).map(|state| state.logprob_token_ids.clone()))
                .map(Option::unwrap_or_default)
                .collect(),
            adjustments: None,
        })
    }

    /// True if the rows are of the same sequences.
    pub(super) fn is_for(&self, rows: &[SampleRow]) -> bool {
        self.members.iter().copied().eq(rows.iter().map(|row| row.sequence))
    }

    /// True if a row is of this sequence.
    pub(super) fn contains(&self, sequence: SequenceId) -> bool {
        self.members.contains(&sequence)
    }

    /// Builds the sampling of one token for each row of the logits to draw from, `[n, vocab]` f32. `logits`: what they were
    /// before they were shaped.
    pub(super) fn sample(
        &mut self,
        (drawn, logits): (&Array, &Array),
        rows: &[SampleRow],
        states: &BTreeMap<SequenceId, SequenceState>,
        (masks, drafts): (Option<&MaskArrays>, &DraftedTokens),
    ) -> mlx::Result<PendingSample> {
        let [_, vocab] = logits.dims()?;
        match drafts.is_empty() {
            true => self.update_adjustments(states, vocab)?,
            false => self.set_adjustments(&adjusted_by_drafts(rows, (states, self.of), drafts), vocab)?,
        }
        let tokens = self.choose(drawn, rows, masks)?;
        let invalid = logits.sum(&[-1])?.is_nan()?.astype(Dtype::I32)?;
        let report = mlx::stack(&[&tokens, &invalid], 0)?;
        let most = self.logprobs.iter().flatten().max();
        let named = self.logprob_token_ids.as_slice();
        let logprobs = most.map(|top| PendingLogprobs::new(logits, &tokens, *top, named)).transpose()?;
        let failed = |row: &SampleRow| states.get(&row.sequence).is_some_and(|state| state.failed);
        Ok(PendingSample {
            tokens,
            report,
            failed: rows.iter().map(failed).collect(),
            logprobs,
            requested: self.logprobs.clone(),
            named: self.logprob_token_ids.clone(),
        })
    }

    /// Builds the rows' adjustments again if one has changed.
    fn update_adjustments(
        &mut self,
        states: &BTreeMap<SequenceId, SequenceState>,
        vocab: i32,
    ) -> mlx::Result<()> {
        let logits = self.of;
        let of = |sequence: &SequenceId| states.get(sequence).and_then(|state| logits.adjustments(state));
        let versions: Vec<u64> =
            self.members.iter().map(|sequence| of(sequence).map_or(0, |one| one.version())).collect();
        if self.adjustments.as_ref().is_none_or(|(built, _)| *built != versions) {
            let arrays = AdjustmentArrays::new(self.members.iter().map(of), vocab, self.entry_reader())?;
            self.adjustments = Some((versions, arrays));
        }
        Ok(())
    }

    /// Takes the adjustments of each row for one step.
    fn set_adjustments(&mut self, rows: &[Option<Cow<'_, LogitAdjustments>>], vocab: i32) -> mlx::Result<()> {
        let arrays = AdjustmentArrays::new(rows.iter().map(Option::as_deref), vocab, self.entry_reader())?;
        // No step has these versions.
        self.adjustments = Some((Vec::new(), arrays));
        Ok(())
    }

    fn entry_reader(&self) -> EntryReader {
        EntryReader::of(match self.choice {
            Choice::Kernel(_) => Chooser::Kernel,
            Choice::Operations(_) => Chooser::Operations,
        })
    }

    /// One token for each row of `logits`, `[n, vocab]` f32 → `[n]` i32.
    fn choose(&self, logits: &Array, rows: &[SampleRow], masks: Option<&MaskArrays>) -> mlx::Result<Array> {
        let adjustments = self.adjustments.as_ref().and_then(|(_, arrays)| arrays.as_ref());
        let xtc = self.xtc.as_ref().map(|xtc| xtc.arrays(rows)).transpose()?;
        match &self.choice {
            Choice::Kernel(parameters) => {
                let edits = RowEdits { adjustments, masks, xtc: xtc.as_ref() };
                parameters.choose(logits, rows, &edits)
            }
            Choice::Operations(groups) => {
                let adjusted = adjustments.map(|adjustments| adjustments.apply(logits)).transpose()?;
                let adjusted = adjusted.as_ref().unwrap_or(logits);
                let masked = masks.map(|masks| masks.apply(adjusted)).transpose()?;
                groups.choose(masked.as_ref().unwrap_or(adjusted), rows, xtc.as_ref())
            }
        }
    }
}

/// Each row's adjustments, with the draft tokens before it counted.
fn adjusted_by_drafts<'a>(
    rows: &[SampleRow],
    (states, of): (&'a BTreeMap<SequenceId, SequenceState>, LogitsOf),
    drafts: &DraftedTokens,
) -> Vec<Option<Cow<'a, LogitAdjustments>>> {
    let adjusted = rows.iter().zip(drafts.before_rows(rows)).map(|(row, before)| {
        let mut adjustments = Cow::Borrowed(of.adjustments(states.get(&row.sequence)?)?);
        before.iter().for_each(|token| adjustments.to_mut().push(*token));
        Some(adjustments)
    });
    adjusted.collect()
}

impl Groups {
    fn new(sampling: &[&Sampling]) -> mlx::Result<Self> {
        let mut groups = Vec::new();
        for kind in [Kind::Greedy, Kind::Plain, Kind::Filtered] {
            let members: Vec<usize> =
                (0..sampling.len()).filter(|row| Kind::of(sampling[*row]) == kind).collect();
            if !members.is_empty() {
                groups.push(Group::new(kind, members, sampling)?);
            }
        }
        let mut order = vec![0i32; sampling.len()];
        for (place, row) in groups.iter().flat_map(|group| &group.rows).enumerate() {
            order[*row] = place as i32;
        }
        let order =
            if groups.len() > 1 { Some(Array::from_slice(&order, &[order.len() as i32])?) } else { None };
        Ok(Self { groups, order })
    }

    fn choose(&self, logits: &Array, rows: &[SampleRow], xtc: Option<&XtcArrays<'_>>) -> mlx::Result<Array> {
        let parts = self.groups.iter().map(|group| group.choose(logits, rows, xtc));
        let parts = parts.collect::<mlx::Result<Vec<Array>>>()?;
        match (parts.as_slice(), &self.order) {
            ([one], _) => Ok(one.clone()),
            (several, Some(order)) => {
                let several: Vec<&Array> = several.iter().collect();
                mlx::concatenate(&several, 0)?.take(order, 0)
            }
            (_, None) => Err(mlx::Error::new("a batch of several groups has an order")),
        }
    }
}

impl Group {
    fn new(kind: Kind, rows: Vec<usize>, sampling: &[&Sampling]) -> mlx::Result<Self> {
        let column = |number: fn(&Sampling) -> f32| {
            let numbers: Vec<f32> = rows.iter().map(|row| number(sampling[*row])).collect();
            Array::from_slice(&numbers, &[numbers.len() as i32, 1])
        };
        let top_k: Vec<i32> = rows
            .iter()
            .map(|row| match sampling[*row].top_k {
                0 => i32::MAX,
                top_k => i32::try_from(top_k).unwrap_or(i32::MAX),
            })
            .collect();
        let indices: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        let all = rows.len() == sampling.len();
        Ok(Self {
            kind,
            indices: if all { None } else { Some(Array::from_slice(&indices, &[indices.len() as i32])?) },
            seeds: rows.iter().map(|row| sampling[*row].seed.unwrap_or(0)).collect(),
            temperature: column(|sampling| sampling.temperature)?,
            top_k: Array::from_slice(&top_k, &[top_k.len() as i32, 1])?,
            top_p: column(|sampling| sampling.top_p)?,
            min_p: column(|sampling| sampling.min_p)?,
            rows,
        })
    }

    fn choose(&self, logits: &Array, rows: &[SampleRow], xtc: Option<&XtcArrays<'_>>) -> mlx::Result<Array> {
        let logits = match &self.indices {
            Some(indices) => &logits.take(indices, 0)?,
            None => logits,
        };
        match self.kind {
            Kind::Greedy => logits.argmax(-1)?.astype(Dtype::I32),
            Kind::Plain => self.invert(&(logits / &self.temperature).softmax(-1)?, rows),
            Kind::Filtered => self.filtered(logits, rows, xtc),
        }
    }

    /// Sorted, most likely first, so that every filter keeps a prefix; then put back in the order of ids.
    fn filtered(
        &self,
        logits: &Array,
        rows: &[SampleRow],
        xtc: Option<&XtcArrays<'_>>,
    ) -> mlx::Result<Array> {
        let [count, vocab] = logits.dims()?;
        let order = (-logits).argsort(-1)?.astype(Dtype::I32)?;
        let sorted = logits.take_along_axis(&order, -1)?;
        let probabilities = (sorted / &self.temperature).softmax(-1)?;
        let zero = Array::scalar(0.0, Dtype::F32)?;
        let best = probabilities.slice(&[0, 0], &[count, 1])?;
        let rank = Array::arange(0..vocab, Dtype::I32)?;
        let kept =
            probabilities.greater_equal(&(best * &self.min_p))?.logical_and(&rank.less(&self.top_k)?)?;
        let weights = mlx::where_(&kept, &probabilities, &zero)?;
        let cumulative = weights.cumsum(-1)?;
        let total = cumulative.slice(&[0, vocab - 1], &[count, vocab])?;
        let before = cumulative - &weights;
        let mut weights = mlx::where_(&before.less(&(total * &self.top_p))?, &weights, &zero)?;
        if let Some(xtc) = xtc {
            weights = self.without_top(&weights, &order, xtc)?;
        }
        self.invert(&weights.take_along_axis(&order.argsort(-1)?, -1)?, rows)
    }

    /// Sorted weights without the most likely tokens of the rows that exclude them. `order`: the tokens.
    fn without_top(&self, weights: &Array, order: &Array, xtc: &XtcArrays<'_>) -> mlx::Result<Array> {
        let own = |array: &Array| match &self.indices {
            Some(indices) => array.take(indices, 0),
            None => Ok(array.clone()),
        };
        let zero = Array::scalar(0.0, Dtype::F32)?;
        let limit = weights.sum_keepdims(&[-1])? * &own(&xtc.thresholds)?.expand_dims(&[-1])?;
        let endless = Array::scalar(f32::INFINITY, Dtype::F32)?;
        let least = mlx::where_(&weights.greater(&limit)?, weights, &endless)?.min_keepdims(&[-1])?;
        let stays = order.expand_dims(&[-1])?.equal(&own(xtc.kept)?.expand_dims(&[1])?)?;
        let stays = stays.astype(Dtype::I32)?.sum(&[-1])?.greater(&Array::from_slice(&[0], &[])?)?;
        let excluded = weights.greater(&least)?.logical_and(&stays.logical_not()?)?;
        mlx::where_(&excluded, &zero, weights)
    }

    /// The first place where the cumulative weight passes the row's uniform share of the whole. `weights` need not sum
    /// to one. A place without weight can only result from rounding at the very end; then the heaviest place is taken.
    fn invert(&self, weights: &Array, rows: &[SampleRow]) -> mlx::Result<Array> {
        let [count, vocab] = weights.dims()?;
        let cumulative = weights.cumsum(-1)?;
        let total = cumulative.slice(&[0, vocab - 1], &[count, vocab])?;
        let uniforms: Vec<f32> = self
            .rows
            .iter()
            .zip(&self.seeds)
            .map(|(row, seed)| uniform(*seed, rows[*row].position))
            .collect();
        let share = total * Array::from_slice(&uniforms, &[uniforms.len() as i32, 1])?;
        let place = cumulative.less_equal(&share)?.astype(Dtype::I32)?.sum(&[-1])?;
        let place = place.minimum(&Array::from_slice(&[vocab - 1], &[])?)?;
        let weight = weights.take_along_axis(&place.expand_dims(&[-1])?, -1)?.squeeze(&[-1])?;
        let heaviest = weights.argmax(-1)?.astype(Dtype::I32)?;
        mlx::where_(&weight.greater(&Array::scalar(0.0, Dtype::F32)?)?, &place, &heaviest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_the_operations_choose_equal_tokens() {
        const ROWS: usize = 24;
        const VOCAB: i32 = 700;
        let sampling: Vec<Sampling> = (0..ROWS)
            .map(|row| Sampling {
                seed: Some(row as u64),
                temperature: [0.0, 0.7, 1.3][row % 3],
                top_k: [0, 1, 40][row / 3 % 3],
                top_p: [1.0, 0.9][row / 9 % 2],
                min_p: [0.0, 0.02][row / 2 % 2],
                xtc_probability: [0.0, 0.5][row % 2],
                xtc_threshold: 0.02,
                ..Sampling::default()
            })
            .collect();
        let sampling: Vec<&Sampling> = sampling.iter().collect();
        for seed in 0..20 {
            let key = mlx::random::key(seed).unwrap();
            let logits = mlx::random::normal(&[ROWS as i32, VOCAB], Dtype::F32, 2.0, &key).unwrap();
            let row =
                |row| SampleRow { sequence: SequenceId(row as u64), position: seed as usize, logits: row };
            let rows: Vec<SampleRow> = (0..ROWS).map(row).collect();
            let tokens = |chosen: mlx::Result<Array>| chosen.unwrap().to_vec::<i32>().unwrap();
            let kept: Vec<u32> = (0..40).collect();
            let of_rows: Vec<(&Sampling, &[u32])> = sampling.iter().map(|row| (*row, &kept[..])).collect();
            let xtc = XtcParameters::new(&of_rows).unwrap().unwrap();
            let xtc = Some(xtc.arrays(&rows).unwrap());
            let kernel = KernelRows::new(&sampling).unwrap().choose(
                &logits,
                &rows,
                &RowEdits { xtc: xtc.as_ref(), ..RowEdits::default() },
            );
            let operations = Groups::new(&sampling).unwrap().choose(&logits, &rows, xtc.as_ref());
            assert_eq!(tokens(kernel), tokens(operations), "seed {seed}");
        }
    }
}
