//! `omnibus batch`: requests of a file, answered into another, as often begun again as it takes.
//!
//! Invariant: the file of results has each finished line once, whenever the process ends. Memory does not depend on the number
//! of lines but for a few bytes each.

mod files;
mod run;

pub use files::{input, journal};
pub use run::{Server, Summary, run};
