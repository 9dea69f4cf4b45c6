//! Reasoning between two tags.

use crate::syntax::{Deltas, Flow, Found, Input, Opening, Stop, Syntax, find};

/// What differs between formats.
#[derive(Debug)]
pub(super) struct Tags {
    pub openings: &'static [Opening],
    /// The first that comes ends the reasoning.
    pub closings: &'static [&'static str],
    /// Markers of calls, which models write without closing their reasoning. They end it, too.
    pub ends_before: &'static [&'static str],
}

impl Tags {
    pub fn syntax(&'static self) -> Box<dyn Syntax> {
        Box::new(Reader { tags: self, state: State::Opening })
    }
}

struct Reader {
    tags: &'static Tags,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Opening,
    Reasoning,
}

impl Syntax for Reader {
    fn openings(&self) -> &'static [Opening] {
        self.tags.openings
    }

    fn begin(&mut self) {
        self.state = State::Opening;
    }

    fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop> {
        if self.state == State::Opening {
            let openings: Vec<&str> = self.tags.openings.iter().map(|opening| opening.text).collect();
            input.read(|peek| peek.one_of(&openings))?;
            input.commit();
            self.state = State::Reasoning;
        }
        let Tags { closings, ends_before, .. } = self.tags;
        let ends: Vec<&str> = closings.iter().chain(*ends_before).copied().collect();
        let found = find(input.rest(), input.has_ended(), &ends, |_, _| true);
        let (Found::At(at, _) | Found::Before(at)) = found;
        out.reasoning(input.consume(at));
        let Found::At(_, index) = found else {
            return if input.has_ended() { Ok(Flow::Done) } else { Err(Stop::More) };
        };
        input.consume(closings.get(index).map_or(0, |closing| closing.len()));
        out.drop_whitespace();
        Ok(Flow::Done)
    }

    fn is_reasoning(&self) -> bool {
        self.state == State::Reasoning
    }
}
