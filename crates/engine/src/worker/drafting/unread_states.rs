//! The target's hidden states that a draft head has not read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use mlx::Array;
use omnibus_core::SequenceId;
use omnibus_model::take_rows;

use crate::worker::hidden::{KeptRows, KeptStates};

/// Hidden states by sequence and position. Those of a step stay in one array, so that a step costs the host the same with any
/// number of sequences.
#[derive(Default)]
pub(super) struct UnreadStates {
    /// In the order of positions.
    sequences: BTreeMap<SequenceId, Vec<Part>>,
}

/// States of consecutive positions.
#[derive(Clone)]
struct Part {
    positions: Range<usize>,
    /// `[n, width]`: of all sequences of a step.
    step: Rc<Array>,
    /// The row of the first position.
    row: usize,
}

impl Part {
    /// The states of these positions that it has.
    fn within(&self, positions: &Range<usize>) -> Option<Self> {
        let start = self.positions.start.max(positions.start);
        let end = self.positions.end.min(positions.end);
        let row = self.row + start.saturating_sub(self.positions.start);
        (start < end).then(|| Self { positions: start..end, step: Rc::clone(&self.step), row })
    }

    fn rows(&self) -> Range<usize> {
        self.row..self.row + self.positions.len()
    }
}

impl UnreadStates {
    /// Keeps the states of a step, which take the place of older ones from their first position on.
    pub(super) fn keep(&mut self, KeptStates { states, of }: KeptStates) {
        let step = Rc::new(states);
        for KeptRows { sequence, position, row, len } in of {
            let parts = self.sequences.entry(sequence).or_default();
            let before = 0..position;
            *parts = parts.iter().filter_map(|part| part.within(&before)).collect();
            parts.push(Part { positions: position..position + len, step: Rc::clone(&step), row });
        }
    }

    /// The states of these positions, `[rows, width]`, end to end; rows behind them have any. Earlier ones are not needed again.
    pub(super) fn take(&mut self, wanted: &[(SequenceId, Range<usize>)], rows: usize) -> mlx::Result<Array> {
        let mut taken = Vec::new();
        for (sequence, positions) in wanted {
            let parts = self.sequences.entry(*sequence).or_default();
            let found: Vec<Part> = parts.iter().filter_map(|part| part.within(positions)).collect();
            if found.iter().map(|part| part.positions.len()).sum::<usize>() != positions.len() {
                return Err(mlx::Error::new("the target's hidden states of a draft head's rows"));
            }
            taken.extend(found);
            let behind = positions.end..usize::MAX;
            *parts = parts.iter().filter_map(|part| part.within(&behind)).collect();
        }
        joined(&taken, rows)
    }

    /// A sequence has ended.
    pub(super) fn remove(&mut self, sequence: SequenceId) {
        self.sequences.remove(&sequence);
    }

    /// All sequences have ended.
    pub(super) fn clear(&mut self) {
        self.sequences.clear();
    }
}

/// The states of all parts end to end, and any behind them, `[rows, width]`.
fn joined(parts: &[Part], rows: usize) -> mlx::Result<Array> {
    let mut steps: Vec<(&Rc<Array>, Vec<usize>)> = Vec::new();
    // Of each row its step, and its place among those of the step.
    let mut places = Vec::new();
    for part in parts {
        let found = steps.iter().position(|(step, _)| Rc::ptr_eq(step, &part.step));
        let step = found.unwrap_or(steps.len());
        if found.is_none() {
            steps.push((&part.step, Vec::new()));
        }
        if let Some((_, taken)) = steps.get_mut(step) {
            places.extend((taken.len()..).take(part.positions.len()).map(|place| (step, place)));
            taken.extend(part.rows());
        }
    }
    let taken = steps.iter().map(|(step, taken)| rows_of(step, taken));
    match taken.collect::<mlx::Result<Vec<_>>>()?.as_slice() {
        [one] if rows == places.len() => Ok(one.clone()),
        [] => Err(mlx::Error::new("rows of a draft head")),
        several => {
            let firsts = steps.iter().scan(0, |next, (_, taken)| {
                let first = *next;
                *next += taken.len();
                Some(first)
            });
            let firsts: Vec<usize> = firsts.collect();
            let order = places.iter().map(|(step, place)| firsts.get(*step).copied().unwrap_or(0) + place);
            let order: Vec<usize> = order.chain(std::iter::repeat(0)).take(rows).collect();
            let all = match several {
                [one] => one.clone(),
                several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), 0)?,
            };
            rows_of(&all, &order)
        }
    }
}

/// These rows of an array.
fn rows_of(of: &Array, rows: &[usize]) -> mlx::Result<Array> {
    if rows.iter().copied().eq(0..of.dim(0)? as usize) {
        return Ok(of.clone());
    }
    let rows: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
    take_rows(of, &Array::from_slice(&rows, &[rows.len() as i32])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step whose states are `first`, `first + 1` and so on.
    fn step(first: usize, of: &[(u64, usize, usize)]) -> KeptStates {
        let mut row = 0;
        let of = of.iter().map(|(sequence, position, len)| {
            let kept = KeptRows { sequence: SequenceId(*sequence), position: *position, row, len: *len };
            row += len;
            kept
        });
        let of: Vec<KeptRows> = of.collect();
        let states: Vec<f32> = (first..first + row).map(|state| state as f32).collect();
        KeptStates { states: Array::from_slice(&states, &[row as i32, 1]).unwrap(), of }
    }

    #[track_caller]
    fn check(unread: &mut UnreadStates, wanted: &[(u64, Range<usize>)], rows: usize, expected: &[f32]) {
        let wanted: Vec<_> = wanted.iter().map(|(of, at)| (SequenceId(*of), at.clone())).collect();
        let states = unread.take(&wanted, rows).unwrap();
        assert_eq!(states.shape(), [rows as i32, 1]);
        assert_eq!(states.to_vec::<f32>().unwrap()[..expected.len()], *expected);
    }

    #[test]
    fn states_are_taken_in_the_order_of_what_reads_them() {
        let mut unread = UnreadStates::default();
        unread.keep(step(10, &[(0, 0, 3), (1, 5, 2), (2, 7, 1)]));
        check(&mut unread, &[(1, 5..7), (0, 0..2)], 4, &[13.0, 14.0, 10.0, 11.0]);
        // Of the first sequence one is left. It is read beside those of a later step.
        unread.keep(step(20, &[(1, 7, 1), (0, 3, 2)]));
        check(&mut unread, &[(0, 2..5), (2, 7..8), (1, 7..8)], 8, &[12.0, 21.0, 22.0, 15.0, 20.0]);
        let wanted = [(SequenceId(0), 2..5)];
        assert!(unread.take(&wanted, 3).is_err(), "they were read");
    }

    #[test]
    fn states_of_rejected_tokens_make_way_for_later_ones() {
        let mut unread = UnreadStates::default();
        unread.keep(step(10, &[(0, 4, 4)]));
        unread.keep(step(20, &[(0, 6, 1)]));
        check(&mut unread, &[(0, 4..7)], 3, &[10.0, 11.0, 20.0]);
        unread.keep(step(30, &[(0, 7, 1), (1, 0, 1)]));
        unread.remove(SequenceId(0));
        assert!(unread.take(&[(SequenceId(0), 7..8)], 1).is_err());
        check(&mut unread, &[(1, 0..1)], 2, &[31.0]);
    }

    #[test]
    fn states_of_a_whole_step_are_not_copied() {
        let mut unread = UnreadStates::default();
        let step = step(10, &[(0, 0, 2), (1, 4, 2)]);
        let states = step.states.clone();
        unread.keep(step);
        let taken = unread.take(&[(SequenceId(0), 0..2), (SequenceId(1), 4..6)], 4).unwrap();
        assert_eq!(taken.id(), states.id());
    }
}
