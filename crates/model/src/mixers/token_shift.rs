//! The row before each row of a sequence: a state of one row.

use super::Recurrence;

/// Remembers a sequence's last row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenShift {
    /// Width of a row.
    pub width: usize,
}

impl Recurrence for TokenShift {
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![1, self.width], vec![1]]
    }
}
