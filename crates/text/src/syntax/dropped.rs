//! Markers that stand for nothing: the ends of turns, and tags around an answer.

use super::{Deltas, Flow, Input, Opening, Stop, Syntax};

/// Drops its openings, and whitespace beside them.
#[derive(Debug)]
pub(crate) struct Dropped(pub &'static [Opening]);

impl Dropped {
    pub fn syntax(openings: &'static [Opening]) -> Box<dyn Syntax> {
        Box::new(Self(openings))
    }
}

impl Syntax for Dropped {
    fn openings(&self) -> &'static [Opening] {
        self.0
    }

    fn begin(&mut self) {}

    fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop> {
        for opening in self.0 {
            if input.read(|peek| peek.literal(opening.text)).is_ok() {
                out.drop_whitespace();
                return Ok(Flow::Done);
            }
        }
        Err(Stop::No)
    }
}
