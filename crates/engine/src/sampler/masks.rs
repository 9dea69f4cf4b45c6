//! Masks of the rows whose sequences have a grammar. The other rows' logits stay what they are.

use std::collections::BTreeMap;

use mlx::{Array, Dtype};
use omnibus_core::SequenceId;
use omnibus_grammar::TokenMask;

use super::SampleRow;

/// The masks of a step's rows, as arrays.
pub(super) struct MaskArrays {
    /// The rows that have one, ascending.
    rows: Vec<i32>,
    /// `[masks, words]` u32, in the order of `rows`.
    masks: Array,
}

impl MaskArrays {
    /// `None` if no row has a mask.
    pub(super) fn new(
        rows: &[SampleRow],
        masks: &BTreeMap<SequenceId, TokenMask>,
    ) -> mlx::Result<Option<Self>> {
        if masks.is_empty() {
            return Ok(None);
        }
        let masked =
            rows.iter().enumerate().filter_map(|(at, row)| Some((at as i32, masks.get(&row.sequence)?)));
        let (rows, masks): (Vec<i32>, Vec<&TokenMask>) = masked.unzip();
        let Some(first) = masks.first() else { return Ok(None) };
        let words = first.words().len();
        let all: Vec<u32> = masks.iter().flat_map(|mask| mask.words()).copied().collect();
        let masks = Array::from_slice(&all, &[rows.len() as i32, words as i32])?;
        Ok(Some(Self { rows, masks }))
    }

    /// The logits, −∞ for forbidden tokens. `logits`: `[n, vocab]` f32.
    pub(super) fn apply(&self, logits: &Array) -> mlx::Result<Array> {
        if mlx::cpu::available() { self.apply_in_kernel(logits) } else { self.apply_in_ops(logits) }
    }

    fn apply_in_kernel(&self, logits: &Array) -> mlx::Result<Array> {
        let [count, _] = logits.dims()?;
        let mut places = vec![-1; count as usize];
        for (place, row) in self.rows.iter().enumerate() {
            if let Some(at) = places.get_mut(*row as usize) {
                *at = place as i32;
            }
        }
        mlx::cpu::mask_logits(logits, &Array::from_slice(&places, &[count])?, &self.masks)
    }

    fn apply_in_ops(&self, logits: &Array) -> mlx::Result<Array> {
        let [count, vocab] = logits.dims()?;
        let [masks, words] = self.masks.dims()?;
        let bits: Vec<u32> = (0..32).map(|bit| 1 << bit).collect();
        let bits = self.masks.expand_dims(&[-1])?.bitwise_and(&Array::from_slice(&bits, &[32])?)?;
        let bits = bits.not_equal(&Array::from_slice(&[0_u32], &[1])?)?.reshape(&[masks, words * 32])?;
        let allowed = bits.slice(&[0, 0], &[masks, vocab])?;
        let forbidden = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
        if masks == count {
            return mlx::where_(&allowed, logits, &forbidden);
        }
        let rows = Array::from_slice(&self.rows, &[masks])?;
        let masked = mlx::where_(&allowed, &logits.take(&rows, 0)?, &forbidden)?;
        logits.clone().scatter_rows(&rows, &masked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_token_is_not_chosen_by_the_smallest_share() {
        let logits = Array::from_slice(&[f32::NEG_INFINITY, f32::NEG_INFINITY, 1.0, 0.5], &[1, 4]).unwrap();
        for top_k in [0, 3] {
            let numbers = Array::from_slice(&[1.0_f32, 1.0, 0.0, 0.0], &[1, 4]).unwrap();
            let top_k = Array::from_slice(&[top_k], &[1]).unwrap();
            let chosen = mlx::cpu::choose_tokens(&logits, &numbers, &top_k).unwrap();
            assert_eq!(chosen.to_vec::<i32>().unwrap(), [2]);
        }
    }

    #[test]
    fn the_kernel_and_the_operations_give_equal_bits() {
        let vocab = 70;
        let logits: Vec<f32> = (0..4 * vocab).map(|at| (at as f32 * 0.7).sin() * 3.0).collect();
        let logits = Array::from_slice(&logits, &[4, vocab]).unwrap();
        let row = |sequence| SampleRow { sequence: SequenceId(sequence), position: 0, logits: 0 };
        let mut most = TokenMask::all(vocab as usize);
        most.set(3, false);
        let few = TokenMask::only(69, vocab as usize);
        for masked in
            [vec![(1, few.clone()), (3, most.clone())], (0..4).map(|row| (row, few.clone())).collect()]
        {
            let masks = masked.iter().map(|(id, mask)| (SequenceId(*id), mask.clone())).collect();
            let arrays = MaskArrays::new(&[0, 1, 2, 3].map(row), &masks).unwrap().unwrap();
            let bits = |array: mlx::Result<Array>| array.unwrap().to_vec::<f32>().unwrap();
            let in_kernel = bits(arrays.apply_in_kernel(&logits));
            assert_eq!(in_kernel, bits(arrays.apply_in_ops(&logits)));
            let plain = bits(Ok(logits.clone()));
            for (at, (masked, plain)) in in_kernel.iter().zip(&plain).enumerate() {
                let (row, token) = (at / vocab as usize, at % vocab as usize);
                let allowed = masks.get(&SequenceId(row as u64)).is_none_or(|mask| mask.allows(token as u32));
                assert_eq!(*masked, if allowed { *plain } else { f32::NEG_INFINITY });
            }
        }
        assert!(MaskArrays::new(&[row(9)], &BTreeMap::from([(SequenceId(1), few)])).unwrap().is_none());
    }
}
