//! Layout: markers with the name of the function, then its arguments as one JSON object, then closing markers.

use super::call::{Call, CallHead, take_tail};
use super::json_calls::Names;
use super::schemas::ToolSchemas;
use crate::syntax::{Deltas, Flow, Input, Opening, Peek, Quotes, Stop, Syntax};

/// What differs between formats of this layout.
#[derive(Debug)]
pub(crate) struct NamedJson {
    pub openings: &'static [Opening],
    /// Reads from the opening to where the arguments begin.
    pub head: fn(&mut Peek<'_>) -> Result<CallHead, Stop>,
    pub names: Names,
    pub quotes: Quotes,
    /// What may follow the arguments, each with whitespace before it.
    pub tail: &'static [&'static str],
}

impl NamedJson {
    pub fn syntax(&'static self, schemas: &ToolSchemas) -> Box<dyn Syntax> {
        Box::new(Reader { layout: self, schemas: schemas.clone(), state: State::Head })
    }
}

struct Reader {
    layout: &'static NamedJson,
    schemas: ToolSchemas,
    state: State,
}

enum State {
    Head,
    Call(Call),
    Tail,
}

impl Syntax for Reader {
    fn openings(&self) -> &'static [Opening] {
        self.layout.openings
    }

    fn begin(&mut self) {
        self.state = State::Head;
    }

    fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop> {
        match &mut self.state {
            State::Head => {
                let head = input.read(self.layout.head)?;
                if self.layout.names == Names::Known && !self.schemas.contains(&head.name) {
                    return Err(Stop::No);
                }
                self.state = State::Call(Call::new(head, self.layout.quotes));
            }
            State::Call(call) => {
                call.step(input, out)?;
                self.state = State::Tail;
            }
            State::Tail => {
                input.read(|peek| take_tail(peek, self.layout.tail))?;
                return Ok(Flow::Done);
            }
        }
        Ok(Flow::Continue)
    }
}
