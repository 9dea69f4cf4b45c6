//! Layout: a tag with the name of the function, a tag for each parameter around its value, and closing tags.
//!
//! Values are bare text. A string streams; a value of another type is held back until it is complete. A closing tag
//! counts where a tag of the format follows it, since a value may hold the same text.

use super::call::{CallHead, name_before, take_tail};
use super::schemas::{Schema, ToolSchemas, Types};
use super::typed_value::typed_value;
use crate::syntax::{
    CallEnding, Deltas, Flow, Found, Input, Opening, Peek, Stop, Syntax, find, push_escaped, push_json_string,
};

/// What differs between formats of this layout.
#[derive(Debug)]
pub(crate) struct Parameters {
    pub openings: &'static [Opening],
    /// Reads from the opening to after the name.
    pub head: fn(&mut Peek<'_>) -> Result<CallHead, Stop>,
    /// How the tag of a parameter begins.
    pub parameter: &'static str,
    /// Reads from there to the value.
    pub parameter_head: fn(&mut Peek<'_>) -> Result<ParameterHead, Stop>,
    pub value_end: &'static str,
    /// The JSON of a value that is no string, from its text and its schema.
    pub convert: fn(&str, Schema<'_>) -> String,
    pub padding: Padding,
    pub call_end: &'static str,
    /// How the tag of another call begins that has no opening of its own. Empty if there is none.
    pub next_call: &'static str,
    /// What may follow the calls, each with whitespace before it.
    pub tail: &'static [&'static str],
}

/// What precedes a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParameterHead {
    pub name: String,
    pub value: ValueType,
    /// The end of this value, where it is not the usual one.
    pub end: Option<String>,
    /// A tag in the value that has the same end.
    pub nested: Option<String>,
}

/// How the type of a value is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueType {
    /// From the schema.
    Schema,
    /// The tag says that it is a string.
    String,
    /// The tag says that it is JSON.
    Json,
}

/// What stands between a value and its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    None,
    /// A line break on each side.
    Newline,
}

impl ParameterHead {
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), value: ValueType::Schema, end: None, nested: None }
    }
}

impl Parameters {
    pub fn syntax(&'static self, schemas: &ToolSchemas) -> Box<dyn Syntax> {
        Box::new(Reader {
            layout: self,
            schemas: schemas.clone(),
            state: State::Head,
            tool: String::new(),
            separator: "{",
        })
    }
}

struct Reader {
    layout: &'static Parameters,
    schemas: ToolSchemas,
    state: State,
    tool: String,
    /// What precedes the next key.
    separator: &'static str,
}

enum State {
    Head,
    Tag,
    Value(Value),
    Tail,
}

/// A value in progress.
struct Value {
    name: String,
    kind: ValueType,
    types: Types,
    end: String,
    nested: Option<String>,
    /// The text, where it does not stream.
    held: String,
    is_first: bool,
}

/// What follows a value or the head of a call.
enum Tag {
    Parameter(ParameterHead),
    CallEnd,
}

impl Syntax for Reader {
    fn openings(&self) -> &'static [Opening] {
        self.layout.openings
    }

    fn begin(&mut self) {
        self.state = State::Head;
    }

    fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop> {
        let layout = self.layout;
        match &mut self.state {
            State::Head => {
                // What follows is read, too: a name alone is no call yet.
                let head = input.read(|peek| {
                    let head = (layout.head)(peek)?;
                    let mut ahead = peek.clone();
                    ahead.whitespace()?;
                    ahead.one_of(&[layout.parameter, layout.call_end])?;
                    Ok(head)
                })?;
                self.tool.clone_from(&head.name);
                self.separator = "{";
                head.start(input, out);
                self.state = State::Tag;
            }
            State::Tag => self.tag(input, out)?,
            State::Value(value) => {
                value.step(layout, input, out)?;
                let schema = self.schemas.arguments(&self.tool).member(&value.name);
                value.finish(layout, schema, out);
                self.state = State::Tag;
            }
            State::Tail => return self.tail(input),
        }
        Ok(Flow::Continue)
    }

    fn take_held(&mut self) -> String {
        match &mut self.state {
            State::Value(value) => std::mem::take(&mut value.held),
            _ => String::new(),
        }
    }
}

impl Reader {
    fn tag(&mut self, input: &mut Input, out: &mut Deltas) -> Result<(), Stop> {
        let layout = self.layout;
        let tag = input.read(|peek| {
            peek.whitespace()?;
            if peek.optional(layout.call_end)? {
                Ok(Tag::CallEnd)
            } else if peek.optional(layout.parameter)? {
                (layout.parameter_head)(peek).map(Tag::Parameter)
            } else {
                // The tag that ends all calls ends this one.
                peek.clone().one_of(layout.tail).map(|_| Tag::CallEnd)
            }
        })?;
        match tag {
            Tag::Parameter(head) => {
                let mut json = self.separator.to_owned();
                push_json_string(&mut json, &head.name);
                json.push(':');
                out.arguments(&json);
                self.separator = ",";
                let types = match head.value {
                    ValueType::Schema => self.schemas.arguments(&self.tool).member(&head.name).types(),
                    ValueType::String => Types::STRING,
                    ValueType::Json => Types::ANY,
                };
                if types == Types::STRING {
                    out.arguments("\"");
                }
                let end = head.end.unwrap_or_else(|| layout.value_end.to_owned());
                let value = Value {
                    name: head.name,
                    kind: head.value,
                    types,
                    end,
                    nested: head.nested,
                    held: String::new(),
                    is_first: true,
                };
                self.state = State::Value(value);
            }
            Tag::CallEnd => {
                out.arguments(if self.separator == "{" { "{}" } else { "}" });
                out.end_call(CallEnding::Complete);
                self.state = State::Tail;
            }
        }
        Ok(())
    }

    fn tail(&mut self, input: &mut Input) -> Result<Flow, Stop> {
        let layout = self.layout;
        let has_next = !layout.next_call.is_empty()
            && input.read(|peek| {
                let mut ahead = peek.clone();
                ahead.whitespace()?;
                ahead.optional(layout.next_call)
            })?;
        if has_next {
            input.skip_whitespace();
            input.open();
            self.state = State::Head;
            return Ok(Flow::Continue);
        }
        input.read(|peek| take_tail(peek, layout.tail))?;
        Ok(Flow::Done)
    }
}

impl Value {
    /// Reads up to the end of the value, and past it.
    fn step(&mut self, layout: &Parameters, input: &mut Input, out: &mut Deltas) -> Result<(), Stop> {
        let has_padding = layout.padding == Padding::Newline;
        if self.is_first {
            if has_padding {
                input.read(|peek| peek.optional("\n"))?;
            }
            self.is_first = false;
        }
        let end = self.end.clone();
        // The line break before the tag is no part of the value.
        let padded = format!("\n{end}");
        let ends: &[&str] = if has_padding { &[&padded, &end] } else { &[&end] };
        loop {
            let found = find(input.rest(), input.has_ended(), ends, |_, _| true);
            let (Found::At(at, _) | Found::Before(at)) = found;
            let text = input.consume(at).to_owned();
            self.push(&text, out);
            let Found::At(_, index) = found else {
                return Err(if input.has_ended() { Stop::No } else { Stop::More });
            };
            let end = ends.get(index).copied().unwrap_or_default();
            if !self.is_inside_nested() && input.read(|peek| is_end_of_value(peek, end, layout))? {
                return Ok(());
            }
            let text = input.consume(end.len()).to_owned();
            self.push(&text, out);
        }
    }

    /// Whether the next end is that of a tag in the value.
    fn is_inside_nested(&self) -> bool {
        let count = |tag: &str| self.held.matches(tag).count();
        self.nested.as_ref().is_some_and(|nested| count(nested) > count(&self.end))
    }

    fn push(&mut self, text: &str, out: &mut Deltas) {
        if self.types == Types::STRING {
            let mut json = String::new();
            push_escaped(&mut json, text);
            out.arguments(&json);
        } else {
            self.held.push_str(text);
        }
    }

    fn finish(&self, layout: &Parameters, schema: Schema<'_>, out: &mut Deltas) {
        if self.types == Types::STRING {
            out.arguments("\"");
        } else if self.kind == ValueType::Json {
            out.arguments(&typed_value(&self.held, Types::ANY));
        } else {
            out.arguments(&(layout.convert)(&self.held, schema));
        }
    }
}

/// Reads the name of a parameter up to `end`.
pub(crate) fn named_parameter(peek: &mut Peek<'_>, end: &str) -> Result<ParameterHead, Stop> {
    name_before(peek, end).map(ParameterHead::named)
}

/// The JSON of a value on its own.
pub(crate) fn plain_value(text: &str, schema: Schema<'_>) -> String {
    typed_value(text, schema.types())
}

/// Takes the closing tag, if what follows can follow a value.
fn is_end_of_value(peek: &mut Peek<'_>, end: &str, layout: &Parameters) -> Result<bool, Stop> {
    let mut ahead = peek.clone();
    ahead.literal(end)?;
    ahead.whitespace()?;
    let follows = [layout.parameter, layout.call_end].into_iter().chain(layout.tail.iter().copied());
    let follows: Vec<&str> = follows.collect();
    // A message may end inside the next tag.
    let is_cut = ahead.has_ended() && follows.iter().any(|tag| tag.starts_with(ahead.rest()));
    if !is_cut {
        match ahead.one_of(&follows) {
            Ok(_) => {}
            Err(Stop::More) => return Err(Stop::More),
            Err(Stop::No) => return Ok(false),
        }
    }
    peek.take(end.len());
    Ok(true)
}
