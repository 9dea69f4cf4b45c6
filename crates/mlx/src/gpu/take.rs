//! Numbers by their places.

use super::plan::{Plan, int};
use super::source::TAKE_NUMBERS;
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
