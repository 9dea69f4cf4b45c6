//! Which rows of a call are of which sequence, for kernels that keep a state per sequence in a slot.

/// Consecutive rows of one sequence, and where its state is.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) first_row: usize,
    pub(super) len: usize,
    /// Where the state after its rows is written.
    pub(super) slot: usize,
    /// Where the state before them is; `None` starts from zeros.
    pub(super) from: Option<usize>,
}

impl Run {
    /// True if it starts from what the run before it wrote.
    fn continues(&self) -> bool {
        self.from.is_some_and(|from| from != self.slot)
    }
}

/// Runs that may be computed at the same time; the runs of each in order.
pub(super) fn chains(runs: &[Run]) -> Vec<&[Run]> {
    runs.chunk_by(|_, next| next.continues()).collect()
}

/// The runs that make sense, of `[count, 4]` numbers (first row, length, slot, and the slot that it starts from: its own,
/// that of the run before it, or −1 for zeros), and whether a row is in one. A row that is in two belongs to the first.
///
/// # Safety
/// There are that many numbers.
pub(super) unsafe fn runs(
    numbers: *const i32,
    count: usize,
    rows: usize,
    slots: usize,
) -> (Vec<Run>, Vec<bool>) {
    let (mut covered, mut taken) = (vec![false; rows], vec![false; slots]);
    let mut runs: Vec<Run> = Vec::with_capacity(count);
    for i in 0..count {
        let number = |j: usize| usize::try_from(*numbers.add(4 * i + j)).unwrap_or(usize::MAX >> 8);
        let from = usize::try_from(*numbers.add(4 * i + 3)).ok();
        let run = Run { first_row: number(0), len: number(1), slot: number(2), from };
        // Any other slot may be written at the same time.
        if run.continues() && runs.last().map(|last| last.slot) != run.from {
            continue;
        }
        let (Some(rows), Some(slot)) =
            (covered.get_mut(run.first_row..run.first_row + run.len), taken.get_mut(run.slot))
        else {
            continue;
        };
        // Two runs in one slot would be written at the same time.
        if !*slot && rows.iter().all(|covered| !covered) {
            *slot = true;
            rows.fill(true);
            runs.push(run);
        }
    }
    (runs, covered)
}

/// Rows of no run are zeros.
///
/// # Safety
/// `out` is `[rows, width]`.
pub(super) unsafe fn clear(out: *mut f32, width: usize, covered: &[bool]) {
    for (row, covered) in covered.iter().enumerate() {
        if !covered {
            std::ptr::write_bytes(out.add(row * width), 0, width);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these runs are taken, and how many chains they make.
    fn check(numbers: &[[i32; 4]], taken: &[usize], chained: usize) {
        // SAFETY: the numbers are as many as is said.
        let (runs, _) = unsafe { runs(numbers.as_ptr().cast(), numbers.len(), 8, 4) };
        let rows: Vec<usize> = runs.iter().map(|run| run.first_row).collect();
        assert_eq!(rows, taken, "{numbers:?}");
        assert_eq!(chains(&runs).len(), chained, "{numbers:?}");
    }

    #[test]
    fn a_run_starts_from_its_own_slot_or_the_one_written_before_it() {
        check(&[[0, 2, 1, 1], [2, 1, 3, -1]], &[0, 2], 2);
        check(&[[0, 1, 1, 1], [1, 1, 3, 1], [2, 1, 0, 3], [3, 1, 2, 2]], &[0, 1, 2, 3], 2);
        check(&[[0, 1, 1, 1], [1, 1, 3, 2], [2, 1, 0, 3]], &[0], 1);
        check(&[[0, 1, 1, 0]], &[], 0);
        check(&[[0, 1, 1, 1], [1, 1, 1, 1], [2, 1, 4, 4], [6, 3, 2, 2]], &[0], 1);
    }
}
