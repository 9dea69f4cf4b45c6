//! Rows whose tokens one kernel chooses, whatever their parameters.

use mlx::Array;

use super::SampleRow;
use super::adjustments::AdjustmentArrays;
use super::masks::MaskArrays;
use super::random::uniform;
use super::xtc::XtcArrays;
use crate::request::Sampling;

/// The parameters of a step's rows.
pub(super) struct KernelRows {
    rows: Vec<RowParameters>,
    /// `[n]` i32.
    top_k: Array,
}

struct RowParameters {
    seed: u64,
    temperature: f32,
    top_p: f32,
    min_p: f32,
}

impl KernelRows {
    pub(super) fn new(sampling: &[&Sampling]) -> mlx::Result<Self> {
        let rows = sampling.iter().map(|sampling| RowParameters {
            seed: sampling.seed.unwrap_or(0),
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
        });
        let top_k: Vec<i32> =
            sampling.iter().map(|sampling| i32::try_from(sampling.top_k).unwrap_or(i32::MAX)).collect();
        Ok(Self { rows: rows.collect(), top_k: Array::from_slice(&top_k, &[top_k.len() as i32])? })
    }

    /// One token for each row of `logits`, `[n, vocab]` f32 → `[n]` i32.
    pub(super) fn choose(
        &self,
        logits: &Array,
        rows: &[SampleRow],
        edits: &RowEdits<'_>,
    ) -> mlx::Result<Array> {
        let numbers = |(of, row): (&RowParameters, &SampleRow)| {
            [of.temperature, of.top_p, of.min_p, uniform(of.seed, row.position)]
        };
        let numbers: Vec<f32> = self.rows.iter().zip(rows).flat_map(numbers).collect();
        let numbers = Array::from_slice(&numbers, &[rows.len() as i32, 4])?;
        if mlx::cpu::available() {
            let adjusted = edits.adjustments.map(|adjustments| adjustments.apply(logits)).transpose()?;
            let masks = edits.masks.map(MaskArrays::operands);
            let xtc = edits.xtc.map(|xtc| mlx::cpu::XtcRows { thresholds: &xtc.thresholds, kept: xtc.kept });
            let logits = adjusted.as_ref().unwrap_or(logits);
            return mlx::cpu::choose_tokens(logits, &numbers, &self.top_k, masks, xtc);
        }
        let operands = edits.operands(rows.len(), logits.dim(1)?)?;
        let operands = operands.as_ref().map(EditOperands::borrowed);
        mlx::gpu::choose_tokens(logits, &numbers, &self.top_k, operands)
    }
}

/// What changes the logits of a step's rows before tokens are chosen.
#[derive(Clone, Copy, Default)]
pub(super) struct RowEdits<'a> {
    pub(super) adjustments: Option<&'a AdjustmentArrays>,
    pub(super) masks: Option<&'a MaskArrays>,
    /// The CPU's kernel alone excludes tokens.
    pub(super) xtc: Option<&'a XtcArrays<'a>>,
}

/// The operands of the GPU's kernel.
struct EditOperands {
    starts: Array,
    tokens: Array,
    changes: Array,
    places: Array,
    masks: Array,
}

impl RowEdits<'_> {
    /// `None` if no logit changes.
    fn operands(&self, rows: usize, vocab: i32) -> mlx::Result<Option<EditOperands>> {
        if self.adjustments.is_none() && self.masks.is_none() {
            return Ok(None);
        }
        let adjusted = self.adjustments.and_then(|arrays| Some((arrays, arrays.changes()?)));
        let (starts, tokens, changes) = match adjusted {
            Some((arrays, (tokens, changes))) => (arrays.starts.clone(), tokens.clone(), changes.clone()),
            None => (
                Array::from_slice(&vec![0_i32; rows + 1], &[rows as i32 + 1])?,
                Array::from_slice(&[0_i32; 8], &[8])?,
                Array::from_slice(&[0.0_f32; 24], &[8, 3])?,
            ),
        };
        let (places, masks) = match self.masks.map(MaskArrays::operands) {
            Some(masks) => (masks.places.clone(), masks.masks.clone()),
            None => {
                let words = (vocab + 31) / 32;
                let none = Array::from_slice(&vec![0_u32; words as usize], &[1, words])?;
                (Array::from_slice(&vec![-1_i32; rows], &[rows as i32])?, none)
            }
        };
        Ok(Some(EditOperands { starts, tokens, changes, places, masks }))
    }
}

impl EditOperands {
    fn borrowed(&self) -> mlx::gpu::LogitEdits<'_> {
        let Self { starts, tokens, changes, places, masks } = self;
        mlx::gpu::LogitEdits { starts, edited: tokens, changes, places, masks }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use omnibus_grammar::TokenMask;

    use super::*;
    use crate::sampler::adjustments::{EntryReader, LogitAdjustments};

    #[test]
    fn the_operands_of_the_gpus_kernel_have_each_rows_edits() {
        let sampling = Sampling { logit_bias: [(9, 1.5), (3, -2.0)].into(), ..Sampling::default() };
        let penalty = Sampling { presence_penalty: 0.5, ..Sampling::default() };
        let (biased, mut penalized) = (LogitAdjustments::new(&sampling), LogitAdjustments::new(&penalty));
        penalized.start(&[7, 40, 2], 1);
        let rows = [Some(&penalized), None, Some(&biased)];
        let adjustments = AdjustmentArrays::new(rows.into_iter(), 70, EntryReader::GpuKernel).unwrap();
        let mask = TokenMask::only(69, 70);
        let masks = MaskArrays::new([None, Some(Cow::Borrowed(&mask)), None].into_iter(), 70).unwrap();
        let edits = RowEdits { adjustments: adjustments.as_ref(), masks: masks.as_ref(), xtc: None };
        let operands = edits.operands(3, 70).unwrap().unwrap();
        let numbers = |array: &Array| array.to_vec::<i32>().unwrap();
        assert_eq!(numbers(&operands.starts), [0, 2, 2, 4]);
        assert_eq!(numbers(&operands.tokens), [2, 40, 3, 9, 0, 0, 0, 0]);
        let changes = operands.changes.to_vec::<f32>().unwrap();
        assert_eq!(changes[..12], [0.0, 1.0, 0.5, 0.0, 1.0, 0.5, -2.0, 1.0, 0.0, 1.5, 1.0, 0.0]);
        assert_eq!(numbers(&operands.places), [-1, 0, -1]);
        assert_eq!(operands.masks.to_vec::<u32>().unwrap(), [0, 0, 1 << 5]);
        let masks_alone = RowEdits { adjustments: None, ..edits }.operands(3, 70).unwrap().unwrap();
        assert_eq!(numbers(&masks_alone.starts), [0; 4]);
        let changes_alone = RowEdits { masks: None, ..edits }.operands(3, 70).unwrap().unwrap();
        assert_eq!(numbers(&changes_alone.places), [-1; 3]);
        assert!(RowEdits::default().operands(3, 70).unwrap().is_none());
    }
}
