//! One call as a JSON object.

use super::super::call::{Arguments, CallHead};
use super::super::schemas::ToolSchemas;
use crate::syntax::{CallEnding, Deltas, Input, JsonCopy, Peek, Quotes, Stop};

/// Which names are calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// All: the markers are certain.
    Any,
    /// Only tools of the request: the text might be JSON that the client wants to see.
    Known,
}

/// The members of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One for the name and one for the arguments.
    Members,
    /// One, whose key is the name and whose value the arguments.
    NameIsKey,
}

/// A call in progress.
#[derive(Debug)]
pub(crate) struct CallObject {
    shape: Shape,
    state: State,
    /// Objects that are open around the members: one more than usual for `{"type": "function", "function": {…}}`.
    depth: usize,
    id: Option<String>,
    name: Option<String>,
    arguments: Arguments,
    /// Arguments that came before the name.
    held: String,
    phase: Phase,
    /// It has members that no call has. They are dropped, unless they stand for the arguments.
    has_others: bool,
}

#[derive(Debug)]
enum State {
    Open,
    Key,
    Field(Field),
    Skip(JsonCopy),
    Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    /// The name, or an object around the members.
    Function,
    Id,
    Arguments,
}

/// How far the arguments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Before,
    Complete,
    Ended,
}

/// What a function member turned out to be.
enum Function {
    Object,
    Name(String),
}

impl CallObject {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            state: State::Open,
            depth: 0,
            id: None,
            name: None,
            arguments: Arguments::new(Quotes::Json),
            held: String::new(),
            phase: Phase::Before,
            has_others: false,
        }
    }

    /// Reads on. Ok when the object is complete. With `known`, only its names are calls.
    pub fn step(
        &mut self,
        input: &mut Input,
        out: &mut Deltas,
        known: Option<&ToolSchemas>,
    ) -> Result<(), Stop> {
        loop {
            match &mut self.state {
                State::Open => {
                    input.read(|peek| peek.whitespace().and_then(|()| peek.literal("{")))?;
                    self.depth += 1;
                    self.state = State::Key;
                }
                State::Key => {
                    let key = input.read(key)?;
                    self.state = self.field_of(&key, known)?;
                }
                State::Field(field) => {
                    let field = *field;
                    self.field(field, input, out, known)?;
                }
                State::Skip(copy) => {
                    copy.copy(input, &mut String::new())?;
                    self.state = State::Next;
                }
                State::Next => {
                    let is_closed = input.read(|peek| {
                        peek.whitespace()?;
                        peek.one_of(&[",", "}"]).map(|index| index == 1)
                    })?;
                    self.state = State::Key;
                    if is_closed {
                        self.depth -= 1;
                        if self.depth == 0 {
                            return self.close(input, out);
                        }
                        self.state = State::Next;
                    }
                }
            }
        }
    }

    fn field_of(&mut self, key: &str, known: Option<&ToolSchemas>) -> Result<State, Stop> {
        if self.shape == Shape::NameIsKey {
            self.set_name(key.to_owned(), known)?;
            return Ok(State::Field(Field::Arguments));
        }
        Ok(match key {
            "name" | "tool_name" => State::Field(Field::Name),
            "function" => State::Field(Field::Function),
            "arguments" | "parameters" | "args" if self.phase == Phase::Before => {
                State::Field(Field::Arguments)
            }
            "id" | "tool_call_id" => State::Field(Field::Id),
            "type" | "index" => State::Skip(JsonCopy::new(Quotes::Json)),
            // An object that begins with other members is an answer in JSON.
            _ if self.name.is_none() => return Err(Stop::No),
            _ => {
                self.has_others = true;
                State::Skip(JsonCopy::new(Quotes::Json))
            }
        })
    }

    fn field(
        &mut self,
        field: Field,
        input: &mut Input,
        out: &mut Deltas,
        known: Option<&ToolSchemas>,
    ) -> Result<(), Stop> {
        match field {
            Field::Name => {
                let name = input.read(string)?;
                self.set_name(name, known)?;
                self.send_held(input, out);
            }
            Field::Function => match input.read(function)? {
                Function::Object => {
                    self.depth += 1;
                    self.state = State::Key;
                    return Ok(());
                }
                Function::Name(name) => {
                    self.set_name(name, known)?;
                    self.send_held(input, out);
                }
            },
            Field::Id => self.id = Some(input.read(id)?),
            Field::Arguments => {
                let copied = self.arguments.copy(input, &mut self.held);
                if copied.is_ok() {
                    self.phase = Phase::Complete;
                }
                self.send_held(input, out);
                copied?;
            }
        }
        self.state = State::Next;
        Ok(())
    }

    fn set_name(&mut self, name: String, known: Option<&ToolSchemas>) -> Result<(), Stop> {
        if name.is_empty() || known.is_some_and(|known| !known.contains(&name)) {
            return Err(Stop::No);
        }
        // A second name does not change a call that has started.
        self.name.get_or_insert(name);
        Ok(())
    }

    /// Sends the arguments that are known, once the name is.
    fn send_held(&mut self, input: &mut Input, out: &mut Deltas) {
        let Some(name) = &self.name else { return };
        if self.held.is_empty() || self.phase == Phase::Ended {
            return;
        }
        if !out.in_call() {
            CallHead { id: self.id.clone(), name: name.clone() }.start(input, out);
        }
        out.arguments(&std::mem::take(&mut self.held));
        if self.phase == Phase::Complete {
            out.end_call(CallEnding::Complete);
            self.phase = Phase::Ended;
        }
    }

    fn close(&mut self, input: &mut Input, out: &mut Deltas) -> Result<(), Stop> {
        if self.name.is_none() || (self.has_others && self.phase == Phase::Before) {
            return Err(Stop::No);
        }
        if self.phase == Phase::Before {
            self.held.push_str("{}");
            self.phase = Phase::Complete;
        }
        self.send_held(input, out);
        Ok(())
    }
}

fn key(peek: &mut Peek<'_>) -> Result<String, Stop> {
    peek.whitespace()?;
    let key = peek.json_string()?;
    peek.whitespace()?;
    peek.literal(":")?;
    Ok(key)
}

fn string(peek: &mut Peek<'_>) -> Result<String, Stop> {
    peek.whitespace()?;
    peek.json_string()
}

fn function(peek: &mut Peek<'_>) -> Result<Function, Stop> {
    peek.whitespace()?;
    if peek.optional("{")? { Ok(Function::Object) } else { peek.json_string().map(Function::Name) }
}

/// A string, or a number as one.
fn id(peek: &mut Peek<'_>) -> Result<String, Stop> {
    peek.whitespace()?;
    match peek.char()? {
        '"' => peek.json_string(),
        c if c.is_ascii_digit() => peek.name(&[',', '}', ' ', '\n']).map(str::to_owned),
        _ => peek.literal("null").map(|()| String::new()),
    }
}
