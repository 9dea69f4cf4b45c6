//! Which rows of a call are of which sequence, for kernels that keep a state per sequence in a slot.

/// Consecutive rows of one sequence, and where its state is.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) first_row: usize,
    pub(super) len: usize,
    pub(super) slot: usize,
    /// It starts from zeros, whatever the slot holds.
    pub(super) fresh: bool,
}

/// The runs that make sense, of `[count, 4]` numbers (first row, length, slot, whether it starts from zeros), and
/// whether a row is in one. A row that is in two belongs to the first.
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
    let mut runs = Vec::with_capacity(count);
    for i in 0..count {
        let number = |j: usize| usize::try_from(*numbers.add(4 * i + j)).unwrap_or(usize::MAX >> 8);
        let run = Run { first_row: number(0), len: number(1), slot: number(2), fresh: number(3) != 0 };
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
