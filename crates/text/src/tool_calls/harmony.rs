//! Layout: messages with a header that names a channel and a recipient, as gpt-oss writes them.
//!
//! `<|start|>assistant<|channel|>analysis<|message|>…<|end|>` is reasoning, the channel `final` is text, and a message
//! with a recipient, as `to=functions.NAME`, is a call. Source: OpenAI's harmony format, openai/harmony `docs/format.md`.

use super::call::{Call, CallHead, take_tail};
use crate::syntax::{Deltas, Dropped, Flow, Found, Input, Opening, Peek, Quotes, Stop, Syntax, find};

/// The longest header, in bytes.
const MAX_HEADER: usize = 512;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";

/// What ends the text of a message.
const ENDS: &[&str] = &["<|end|>", "<|return|>", "<|call|>"];

/// Which messages to a recipient are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipients {
    /// All, as calls.
    Calls,
    /// None: they are left to another syntax.
    Other,
}

/// The parsers of whole messages.
pub(crate) fn harmony(recipients: Recipients) -> Vec<Box<dyn Syntax>> {
    const DROPPED: &[Opening] =
        &[Opening::anywhere("<|end|>"), Opening::anywhere("<|return|>"), Opening::anywhere("<|call|>")];
    vec![Box::new(Reader { recipients, state: State::Header }), Dropped::syntax(DROPPED)]
}

struct Reader {
    recipients: Recipients,
    state: State,
}

enum State {
    Header,
    Reasoning,
    Call(Call),
    Tail,
}

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Header {
    Reasoning,
    Text,
    Call(String),
}

impl Syntax for Reader {
    fn openings(&self) -> &'static [Opening] {
        const OPENINGS: &[Opening] =
            &[Opening::anywhere(START), Opening::anywhere(CHANNEL), Opening::message_start(" to=")];
        OPENINGS
    }

    fn begin(&mut self) {
        self.state = State::Header;
    }

    fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop> {
        match &mut self.state {
            State::Header => match (input.read(header)?, self.recipients) {
                (Header::Reasoning, _) => {
                    input.commit();
                    self.state = State::Reasoning;
                }
                (Header::Call(name), Recipients::Calls) => {
                    self.state = State::Call(Call::new(CallHead { id: None, name }, Quotes::Json));
                }
                (Header::Call(_), Recipients::Other) => return Err(Stop::No),
                (Header::Text, _) => return Ok(Flow::Done),
            },
            State::Reasoning => return reasoning(input, out),
            State::Call(call) => {
                call.step(input, out)?;
                self.state = State::Tail;
            }
            State::Tail => {
                input.read(|peek| take_tail(peek, &["<|call|>", "<|end|>"]))?;
                return Ok(Flow::Done);
            }
        }
        Ok(Flow::Continue)
    }

    fn is_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning)
    }
}

fn header(peek: &mut Peek<'_>) -> Result<Header, Stop> {
    let text = peek.until("<|message|>", MAX_HEADER)?;
    if text.contains('\n') || ENDS.iter().any(|end| text.contains(end)) {
        return Err(Stop::No);
    }
    let word_behind = |mark: &str| {
        let rest = text.split_once(mark)?.1;
        rest.split(|c: char| c.is_whitespace() || c == '<').next().filter(|word| !word.is_empty())
    };
    let recipient = word_behind(" to=");
    Ok(match (recipient, word_behind(CHANNEL)) {
        (Some(recipient), _) => {
            Header::Call(recipient.strip_prefix("functions.").unwrap_or(recipient).to_owned())
        }
        (None, Some("analysis")) => Header::Reasoning,
        _ => Header::Text,
    })
}

fn reasoning(input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop> {
    let found = find(input.rest(), input.has_ended(), &["<|end|>", START, CHANNEL], |_, _| true);
    let (Found::At(at, _) | Found::Before(at)) = found;
    out.reasoning(input.consume(at));
    match found {
        Found::At(..) => {
            out.drop_whitespace();
            Ok(Flow::Done)
        }
        Found::Before(_) if input.has_ended() => Ok(Flow::Done),
        Found::Before(_) => Err(Stop::More),
    }
}
