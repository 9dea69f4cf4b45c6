//! Rows whose tokens one kernel chooses, whatever their parameters.

use mlx::Array;

use super::SampleRow;
use super::masks::MaskArrays;
use super::random::uniform;
use super::xtc::XtcArrays;
use crate::Sampling;

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
        masks: Option<&MaskArrays>,
        xtc: Option<&XtcArrays<'_>>,
    ) -> mlx::Result<Array> {
        let numbers = |(of, row): (&RowParameters, &SampleRow)| {
            [of.temperature, of.top_p, of.min_p, uniform(of.seed, row.position)]
        };
        let numbers: Vec<f32> = self.rows.iter().zip(rows).flat_map(numbers).collect();
        let numbers = Array::from_slice(&numbers, &[rows.len() as i32, 4])?;
        if mlx::cpu::available() {
            let masks = masks.map(MaskArrays::operands);
            let xtc = xtc.map(|xtc| mlx::cpu::XtcRows { thresholds: &xtc.thresholds, kept: xtc.kept });
            return mlx::cpu::choose_tokens(logits, &numbers, &self.top_k, masks, xtc);
        }
        let masked = masks.map(|masks| masks.apply(logits)).transpose()?;
        mlx::gpu::choose_tokens(masked.as_ref().unwrap_or(logits), &numbers, &self.top_k)
    }
}
