//! Rows that fill a pass up, so that a GPU compiles kernels for few shapes.

use serde::{Deserialize, Serialize};

/// How the number of rows is rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Padding {
    /// Not at all: the CPU kernels take any number equally well.
    #[default]
    None,
    /// To 1, 2, 4, … 16, then multiples of 16, of 32 from 96 on, and of 64 from 256 on, so that a GPU compiles for few
    /// shapes and none costs much more than the one before.
    Buckets,
}

impl Padding {
    /// The rows of a pass with so many rows that are used.
    pub fn of(self, rows: usize) -> usize {
        match self {
            Self::None => rows,
            Self::Buckets if rows <= 16 => rows.next_power_of_two(),
            Self::Buckets if rows <= 96 => rows.next_multiple_of(16),
            Self::Buckets if rows <= 256 => rows.next_multiple_of(32),
            Self::Buckets => rows.next_multiple_of(64),
        }
    }
}
