//! Numbers by their places, and columns of rows.

use super::plan::{Plan, bits, int};
use super::source::{TAKE_COLUMNS, TAKE_NUMBERS};
use crate::dtype::Dtype;

const THREADS: i32 = 256;

/// As many numbers of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeNumbers {
    /// How many, at least one.
    pub count: i32,
}

impl TakeNumbers {
    /// Inputs: numbers `[..]` i32, and places in them `[count]` i32, which are not checked. Output `[count]` i32.
    pub fn plan(&self) -> Plan {
        Plan {
            kernel: &TAKE_NUMBERS,
            constants: vec![int("NT", THREADS)],
            groups: [(self.count + THREADS - 1) / THREADS, 1, 1],
            threads: THREADS,
            outputs: vec![(vec![self.count], Dtype::I32)],
        }
    }
}

/// Columns of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TakeColumns {
    /// How many rows.
    pub rows: i32,
    /// Columns of a row.
    pub width: i32,
    /// How many are taken, at least one.
    pub count: i32,
    /// What stands for columns that are not below the width.
    pub other: f32,
}

impl TakeColumns {
    /// Inputs: rows `[rows, width]`, floats, and columns `[count]` i32, none below zero. Output `[rows, count]` f32. `None` for more
    /// rows than a grid has.
    pub fn plan(&self) -> Option<Plan> {
        let Self { rows, width, count, other } = *self;
        Plan {
            kernel: &TAKE_COLUMNS,
            constants: vec![int("W", width), bits("OTHER", other), int("NT", THREADS)],
            groups: [(count + THREADS - 1) / THREADS, rows, 1],
            threads: THREADS,
            outputs: vec![(vec![rows, count], Dtype::F32)],
        }
        .within_grid()
    }
}
