//! Layout: a marker, one JSON object for each call, and a closing marker. The objects are in an array or follow each
//! other. A member has the name, another the arguments, in any order.

mod object;

use super::call::take_tail;
use super::schemas::ToolSchemas;
use crate::syntax::{Deltas, Flow, Input, Opening, Peek, Stop, Syntax};
use object::CallObject;
pub(crate) use object::{Names, Shape};

/// What differs between formats of this layout.
#[derive(Debug)]
pub(crate) struct JsonCalls {
    pub openings: &'static [Opening],
    /// What may follow the opening, each with whitespace before it.
    pub lead: &'static [&'static str],
    /// What may follow the calls, each with whitespace before it.
    pub tail: &'static [&'static str],
    pub shape: Shape,
    pub names: Names,
}

impl JsonCalls {
    pub fn syntax(&'static self, schemas: &ToolSchemas) -> Box<dyn Syntax> {
        Box::new(Reader {
            layout: self,
            schemas: schemas.clone(),
            state: State::Opening,
            list: List::Sequence,
            object: CallObject::new(self.shape),
        })
    }
}

struct Reader {
    layout: &'static JsonCalls,
    schemas: ToolSchemas,
    state: State,
    list: List,
    object: CallObject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Opening,
    Object,
    Between,
    Tail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Array,
    Sequence,
}

impl Syntax for Reader {
    fn openings(&self) -> &'static [Opening] {
        self.layout.openings
    }

    fn begin(&mut self) {
        self.state = State::Opening;
    }

    fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop> {
        match self.state {
            State::Opening => {
                let layout = self.layout;
                self.list = input.read(|peek| opening(peek, layout))?;
                self.next_object();
            }
            State::Object => {
                let names = match self.layout.names {
                    Names::Any => None,
                    Names::Known => Some(&self.schemas),
                };
                self.object.step(input, out, names)?;
                self.state = State::Between;
            }
            State::Between => {
                let list = self.list;
                if input.read(|peek| has_next(peek, list))? {
                    self.next_object();
                } else {
                    self.state = State::Tail;
                }
            }
            State::Tail => {
                input.read(|peek| take_tail(peek, self.layout.tail))?;
                return Ok(Flow::Done);
            }
        }
        Ok(Flow::Continue)
    }
}

impl Reader {
    fn next_object(&mut self) {
        self.object = CallObject::new(self.layout.shape);
        self.state = State::Object;
    }
}

/// Takes the opening, unless it is the bracket of the calls themselves, and the bracket of an array.
fn opening(peek: &mut Peek<'_>, layout: &JsonCalls) -> Result<List, Stop> {
    for opening in layout.openings {
        if !matches!(opening.text, "{" | "[") && peek.optional(opening.text)? {
            break;
        }
    }
    take_tail(peek, layout.lead)?;
    peek.whitespace()?;
    if peek.optional("[")? || take_member(peek)? {
        return Ok(List::Array);
    }
    if peek.char()? == '{' { Ok(List::Sequence) } else { Err(Stop::No) }
}

/// Takes the start of `{"tool_calls": […]}`, if it is there.
fn take_member(peek: &mut Peek<'_>) -> Result<bool, Stop> {
    let mut ahead = peek.clone();
    for token in ["{", "\"tool_calls\"", ":", "["] {
        ahead.whitespace()?;
        if !ahead.optional(token)? {
            return Ok(false);
        }
    }
    peek.take(ahead.taken() - peek.taken());
    Ok(true)
}

/// Whether another object follows.
fn has_next(peek: &mut Peek<'_>, list: List) -> Result<bool, Stop> {
    let mut ahead = peek.clone();
    ahead.whitespace()?;
    let has_next = match list {
        List::Array => ahead.one_of(&["]", ","])? == 1,
        List::Sequence => {
            let separator = ahead.one_of(&[",", ";"]);
            if separator == Err(Stop::More) {
                return Err(Stop::More);
            }
            ahead.whitespace()?;
            if !ahead.rest().starts_with('{') {
                return Ok(false);
            }
            true
        }
    };
    peek.take(ahead.taken() - peek.taken());
    Ok(has_next)
}
