//! Layout: calls in Python's notation, `[name(key=value, …), …]` or one on each line.

use super::call::{CallHead, take_tail};
use super::json_calls::Names;
use super::schemas::ToolSchemas;
use crate::syntax::{
    CallEnding, Deltas, Flow, Input, JsonCopy, Opening, Peek, Quotes, Stop, Syntax, push_json_string,
};

/// What differs between formats of this layout.
#[derive(Debug)]
pub(crate) struct PythonCalls {
    pub openings: &'static [Opening],
    /// What may follow the calls, each with whitespace before it.
    pub tail: &'static [&'static str],
    pub names: Names,
}

impl PythonCalls {
    pub fn syntax(&'static self, schemas: &ToolSchemas) -> Box<dyn Syntax> {
        Box::new(Reader {
            layout: self,
            schemas: schemas.clone(),
            state: State::Opening,
            is_list: false,
            separator: "{",
        })
    }
}

struct Reader {
    layout: &'static PythonCalls,
    schemas: ToolSchemas,
    state: State,
    /// The calls stand in brackets.
    is_list: bool,
    /// What precedes the next key.
    separator: &'static str,
}

enum State {
    Opening,
    Head,
    Argument,
    Value(JsonCopy),
    ValueEnd,
    Between,
    Tail,
}

/// What follows a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Call,
    End,
}

impl Syntax for Reader {
    fn openings(&self) -> &'static [Opening] {
        self.layout.openings
    }

    fn begin(&mut self) {
        self.state = State::Opening;
    }

    fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop> {
        let layout = self.layout;
        match &mut self.state {
            State::Opening => {
                self.is_list = input.read(|peek| opening(peek, layout.openings))?;
                self.state = State::Head;
            }
            State::Head => self.head(input, out)?,
            State::Argument => self.argument(input, out)?,
            State::Value(copy) => {
                let mut json = String::new();
                let copied = copy.copy(input, &mut json);
                out.arguments(&json);
                copied?;
                self.state = State::ValueEnd;
            }
            State::ValueEnd => {
                input.read(argument_end)?;
                self.state = State::Argument;
            }
            State::Between => {
                let is_list = self.is_list;
                let next = input.read(|peek| next(peek, is_list))?;
                self.state = if next == Next::Call { State::Head } else { State::Tail };
            }
            State::Tail => {
                input.read(|peek| take_tail(peek, layout.tail))?;
                return Ok(Flow::Done);
            }
        }
        Ok(Flow::Continue)
    }
}

impl Reader {
    fn head(&mut self, input: &mut Input, out: &mut Deltas) -> Result<(), Stop> {
        let name = input.read(|peek| {
            let name = identifier(peek)?;
            peek.literal("(")?;
            // Positional arguments have no names, so that they are no call.
            let mut ahead = peek.clone();
            ahead.whitespace()?;
            if !ahead.optional(")")? {
                identifier(&mut ahead)?;
                ahead.whitespace()?;
                ahead.literal("=")?;
            }
            Ok(name)
        })?;
        if self.layout.names == Names::Known && !self.schemas.contains(&name) {
            return Err(Stop::No);
        }
        CallHead { id: None, name }.start(input, out);
        self.separator = "{";
        self.state = State::Argument;
        Ok(())
    }

    fn argument(&mut self, input: &mut Input, out: &mut Deltas) -> Result<(), Stop> {
        let key = input.read(|peek| {
            peek.whitespace()?;
            if peek.optional(")")? {
                return Ok(None);
            }
            let key = identifier(peek)?;
            peek.whitespace()?;
            peek.literal("=")?;
            Ok(Some(key))
        })?;
        let Some(key) = key else {
            out.arguments(if self.separator == "{" { "{}" } else { "}" });
            out.end_call(CallEnding::Complete);
            self.state = State::Between;
            return Ok(());
        };
        let mut json = self.separator.to_owned();
        push_json_string(&mut json, &key);
        json.push(':');
        out.arguments(&json);
        self.separator = ",";
        self.state = State::Value(JsonCopy::new(Quotes::Json));
        Ok(())
    }
}

/// Takes the opening, unless it is the bracket of the calls. Whether they stand in brackets.
fn opening(peek: &mut Peek<'_>, openings: &[Opening]) -> Result<bool, Stop> {
    for opening in openings {
        if opening.text != "[" && peek.optional(opening.text)? {
            break;
        }
    }
    peek.whitespace()?;
    let is_list = peek.optional("[")?;
    peek.whitespace()?;
    Ok(is_list)
}

/// A name with dots.
fn identifier(peek: &mut Peek<'_>) -> Result<String, Stop> {
    let name = peek.name(&['(', '=', ' ', ',', ')', '[', ']', '"', '\'', '{', '<'])?;
    let is_name = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ':' | '$'));
    if is_name { Ok(name.to_owned()) } else { Err(Stop::No) }
}

/// Takes the comma after a value, if there is one.
fn argument_end(peek: &mut Peek<'_>) -> Result<(), Stop> {
    peek.whitespace()?;
    if !peek.optional(",")? {
        peek.clone().literal(")")?;
    }
    Ok(())
}

fn next(peek: &mut Peek<'_>, is_list: bool) -> Result<Next, Stop> {
    let mut ahead = peek.clone();
    ahead.whitespace()?;
    let next = if is_list {
        let next = if ahead.one_of(&["]", ","])? == 0 { Next::End } else { Next::Call };
        if next == Next::Call {
            ahead.whitespace()?;
        }
        next
    } else if ahead.is_end() || ahead.char()? == '<' || ahead.char()? == '`' {
        return Ok(Next::End);
    } else {
        if ahead.one_of(&[";", ","]) == Err(Stop::More) {
            return Err(Stop::More);
        }
        ahead.whitespace()?;
        Next::Call
    };
    peek.take(ahead.taken() - peek.taken());
    Ok(next)
}
