//! A call with its name before its arguments: what most layouts end in.

use crate::syntax::{CallEnding, Deltas, Input, JsonCopy, Peek, Quotes, Stop};

/// What precedes the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallHead {
    pub id: Option<String>,
    pub name: String,
}

impl CallHead {
    pub fn named(name: &str) -> Self {
        Self { id: None, name: name.to_owned() }
    }

    /// Starts the call: what was read so far is no text any more.
    pub fn start(self, input: &mut Input, out: &mut Deltas) {
        input.commit();
        out.start_call(self.id, self.name);
    }
}

/// Reads `openings`, each if it is there and with whitespace after it, then `tag` and the name of the function up to `end`.
pub(crate) fn named_call(
    peek: &mut Peek<'_>,
    openings: &[&str],
    tag: &str,
    end: &str,
) -> Result<CallHead, Stop> {
    for opening in openings {
        peek.optional(opening)?;
        peek.whitespace()?;
    }
    peek.literal(tag)?;
    name_before(peek, end).map(CallHead::named)
}

/// Reads a name, and `end`, which is not empty.
pub(crate) fn name_before<'a>(peek: &mut Peek<'a>, end: &str) -> Result<&'a str, Stop> {
    let ends: Vec<char> = end.chars().take(1).collect();
    let name = peek.name(&ends)?;
    peek.literal(end)?;
    Ok(name)
}

/// Copies arguments into one JSON object: from an object, or from a string that holds one. Nothing stands for none.
#[derive(Debug)]
pub(crate) struct Arguments {
    copy: JsonCopy,
    is_object: bool,
}

impl Arguments {
    pub fn new(quotes: Quotes) -> Self {
        Self { copy: JsonCopy::new(quotes), is_object: false }
    }

    /// Appends what is known of the object to `out`. Ok when it is complete. Nothing is appended before it is certain
    /// that there is one.
    pub fn copy(&mut self, input: &mut Input, out: &mut String) -> Result<(), Stop> {
        if !self.is_object {
            match input.read(other_than_object)? {
                None => self.is_object = true,
                Some(object) => {
                    out.push_str(&object);
                    return Ok(());
                }
            }
        }
        self.copy.copy(input, out)
    }
}

/// The object that something else than an object stands for.
fn other_than_object(peek: &mut Peek<'_>) -> Result<Option<String>, Stop> {
    peek.whitespace()?;
    match peek.char()? {
        '{' => Ok(None),
        '"' => {
            let text = peek.json_string()?;
            if text.trim().is_empty() {
                return Ok(Some("{}".to_owned()));
            }
            let mut object = String::new();
            let mut input = Input::default();
            input.push(&text);
            input.end();
            let mut copy = JsonCopy::new(Quotes::Json);
            match copy.copy(&mut input, &mut object) {
                Ok(()) if object.starts_with('{') && input.rest().trim().is_empty() => Ok(Some(object)),
                _ => Err(Stop::No),
            }
        }
        _ => peek.one_of(&["null", "None"]).map(|_| Some("{}".to_owned())),
    }
}

/// A call whose head was read and whose arguments come.
#[derive(Debug)]
pub(crate) struct Call {
    head: Option<CallHead>,
    arguments: Arguments,
}

impl Call {
    pub fn new(head: CallHead, quotes: Quotes) -> Self {
        Self { head: Some(head), arguments: Arguments::new(quotes) }
    }

    /// Copies the arguments; starts the call when they start. Ok when the call has ended.
    pub fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<(), Stop> {
        let mut json = String::new();
        let copied = self.arguments.copy(input, &mut json);
        if !json.is_empty() {
            if let Some(head) = self.head.take() {
                head.start(input, out);
            }
            out.arguments(&json);
        }
        copied?;
        out.end_call(CallEnding::Complete);
        Ok(())
    }
}

/// Takes those of the literals that are there, in order, with whitespace before them.
pub(crate) fn take_tail(peek: &mut Peek<'_>, tail: &[&str]) -> Result<(), Stop> {
    for literal in tail {
        let mut ahead = peek.clone();
        ahead.whitespace()?;
        if ahead.optional(literal)? {
            peek.take(ahead.taken() - peek.taken());
        }
    }
    Ok(())
}
