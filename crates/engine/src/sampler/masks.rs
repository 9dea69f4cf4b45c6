//! Masks of the rows that may not sample every token. The other rows' logits stay what they are.

use std::borrow::Cow;

use mlx::{Array, Dtype};
use omnibus_grammar::TokenMask;

/// The masks of a step's rows, as arrays.
pub(super) struct MaskArrays {
    /// The rows that have one, ascending.
    rows: Vec<i32>,
    /// Each row's mask, −1 for none: `[n]` i32.
    places: Array,
    /// `[masks, words]` u32, in the order of `rows`.
    masks: Array,
}

/// What a row may sample: what its grammar allows without the forbidden tokens. `None` if that is all. A grammar that allows
/// only those has its way: nothing else may follow.
pub(super) fn of_row<'a>(
    grammar: Option<&'a TokenMask>,
    forbidden: &[u32],
    vocab: usize,
) -> Option<Cow<'a, TokenMask>> {
    if forbidden.is_empty() {
        return grammar.map(Cow::Borrowed);
    }
    let mut mask = grammar.map_or_else(|| TokenMask::all(vocab), TokenMask::clone);
    forbidden.iter().for_each(|token| mask.set(*token, false));
    match grammar {
        Some(grammar) if mask.is_empty() => Some(Cow::Borrowed(grammar)),
        _ => Some(Cow::Owned(mask)),
    }
}

impl MaskArrays {
    /// From each row's mask. `None` if no row has one.
    pub(super) fn new<'a>(
        masks: impl Iterator<Item = Option<Cow<'a, TokenMask>>>,
        vocab: usize,
    ) -> mlx::Result<Option<Self>> {
        let words = vocab.div_ceil(32);
        let (mut rows, mut places, mut all) = (Vec::new(), Vec::new(), Vec::<u32>::new());
        for (at, mask) in masks.enumerate() {
            let Some(mask) = mask else {
                places.push(-1);
                continue;
            };
            places.push(rows.len() as i32);
            rows.push(at as i32);
            all.extend_from_slice(mask.words().get(..words).unwrap_or(mask.words()));
            all.resize(rows.len() * words, 0);
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let masks = Array::from_slice(&all, &[rows.len() as i32, words as i32])?;
        let places = Array::from_slice(&places, &[places.len() as i32])?;
        Ok(Some(Self { rows, places, masks }))
    }

    /// As operands of a kernel.
    pub(super) fn operands(&self) -> mlx::cpu::TokenMasks<'_> {
        mlx::cpu::TokenMasks { places: &self.places, masks: &self.masks }
    }

    /// The logits, −∞ for forbidden tokens, by MLX's operations. `logits`: `[n, vocab]` f32.
    pub(super) fn apply(&self, logits: &Array) -> mlx::Result<Array> {
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

    const VOCAB: i32 = 70;

    fn logits() -> Vec<f32> {
        (0..4 * VOCAB).map(|at| (at as f32 * 0.7).sin() * 3.0).collect()
    }

    #[test]
    fn a_forbidden_token_is_not_chosen_by_the_smallest_share() {
        let logits = Array::from_slice(&[f32::NEG_INFINITY, f32::NEG_INFINITY, 1.0, 0.5], &[1, 4]).unwrap();
        for top_k in [0, 3] {
            let numbers = Array::from_slice(&[1.0_f32, 1.0, 0.0, 0.0], &[1, 4]).unwrap();
            let top_k = Array::from_slice(&[top_k], &[1]).unwrap();
            let chosen = mlx::cpu::choose_tokens(&logits, &numbers, &top_k, None, None).unwrap();
            assert_eq!(chosen.to_vec::<i32>().unwrap(), [2]);
        }
    }

    #[test]
    fn the_kernel_and_the_operations_forbid_the_same_tokens() {
        let logits = logits();
        let array = Array::from_slice(&logits, &[4, VOCAB]).unwrap();
        let mut most = TokenMask::all(VOCAB as usize);
        most.set(3, false);
        let few = TokenMask::only(69, VOCAB as usize);
        for masks in [[None, Some(&few), None, Some(&most)], [Some(&few); 4]] {
            let arrays =
                MaskArrays::new(masks.map(|mask| mask.map(Cow::Borrowed)).into_iter(), VOCAB as usize);
            let arrays = arrays.unwrap().unwrap();
            let applied = arrays.apply(&array).unwrap();
            for (at, (masked, plain)) in applied.to_vec::<f32>().unwrap().iter().zip(&logits).enumerate() {
                let (row, token) = (at / VOCAB as usize, at % VOCAB as usize);
                let allowed = masks[row].is_none_or(|mask| mask.allows(token as u32));
                assert_eq!(*masked, if allowed { *plain } else { f32::NEG_INFINITY });
            }
            for share in [0.0_f32, 0.4, 0.99] {
                let numbers: Vec<f32> = [0.0, 1.0, 0.7, 2.0]
                    .into_iter()
                    .flat_map(|temperature| [temperature, 0.9, 0.0, share])
                    .collect();
                let numbers = Array::from_slice(&numbers, &[4, 4]).unwrap();
                let top_k = Array::from_slice(&[0, 0, 7, 0], &[4]).unwrap();
                let choose = |logits, masks| {
                    let chosen = mlx::cpu::choose_tokens(logits, &numbers, &top_k, masks, None);
                    chosen.unwrap().to_vec::<i32>().unwrap()
                };
                assert_eq!(choose(&array, Some(arrays.operands())), choose(&applied, None));
            }
        }
    }

    #[test]
    fn rows_without_masks_have_no_arrays() {
        assert!(MaskArrays::new([None, None].into_iter(), 70).unwrap().is_none());
    }

    #[test]
    fn forbidden_tokens_are_taken_from_what_a_grammar_allows_unless_nothing_is_left() {
        let grammar = TokenMask::only(7, 70);
        let words = |mask: Option<Cow<'_, TokenMask>>| mask.unwrap().into_owned();
        assert!(of_row(None, &[], 70).is_none());
        let all = words(of_row(None, &[3, 69], 70));
        assert!(!all.allows(3) && !all.allows(69) && all.allows(4));
        assert_eq!(words(of_row(Some(&grammar), &[3], 70)), grammar);
        assert_eq!(words(of_row(Some(&grammar), &[7], 70)), grammar);
    }
}
