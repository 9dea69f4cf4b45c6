//! Where the messages of a conversation lie in its tokens.
//!
//! Most chat templates end messages with the tokens that models end their answers with, and then the tokens say it.
//! Otherwise the template does: it writes the conversation up to a message, and as far as that is how the whole begins,
//! the message ends there.
//!
//! Invariant: every place lies between two tokens of the prompt. Whether a message really ends there is relied on for
//! nothing but speed. However long a conversation, the template writes few beginnings of it.

use std::ops::Range;

use serde_json::Value;

/// So many of the newest messages are looked for: an earlier turn has looked for those before.
const NEWEST: usize = 4;
/// Stands for a message's text. No template takes it for anything, and no text begins with it.
const MARK: &str = "\u{1}";

/// Where the messages of a prompt lie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Turns {
    /// One past each message's end, ascending.
    pub(super) ends: Vec<usize>,
    /// From the end of the first message of the user to the beginning of the newest message: what an earlier turn of
    /// the same conversation had, too, and other conversations had not.
    pub(super) history: Range<usize>,
}

/// A conversation as its template wrote it.
pub(super) struct Rendered<'a, P, R> {
    /// The whole, as it was put into tokens.
    pub(super) text: &'a str,
    /// The text of each token.
    pub(super) pieces: P,
    /// Writes other messages, without asking for an answer.
    pub(super) render: R,
}

impl Turns {
    /// Reads them off the tokens, if all messages end with a token that `ends_turn`, else off what the template writes
    /// as well.
    pub(super) fn of<P, R>(
        messages: &[Value],
        prompt: &[u32],
        ends_turn: impl Fn(u32) -> bool,
        rendered: Option<Rendered<'_, P, R>>,
    ) -> Self
    where
        P: Iterator<Item = Vec<u8>>,
        R: Fn(&[Value]) -> Option<String>,
    {
        let by_tokens = Self::by_tokens(messages, prompt, ends_turn);
        if by_tokens.ends.len() >= messages.len() {
            return by_tokens;
        }
        match rendered.and_then(|rendered| Self::by_text(messages, rendered)) {
            Some(by_text) => by_text.and(by_tokens),
            None => by_tokens,
        }
    }

    fn by_tokens(messages: &[Value], prompt: &[u32], ends_turn: impl Fn(u32) -> bool) -> Self {
        let ends: Vec<usize> =
            prompt.iter().enumerate().filter(|(_, token)| ends_turn(**token)).map(|(at, _)| at + 1).collect();
        // A template may put a message of its own first.
        let added = ends.len().checked_sub(messages.len());
        let start = match (first_question(messages), added) {
            (Some(first), Some(added)) => ends.get(first + added),
            _ => ends.first(),
        };
        let newest = ends.len().checked_sub(2).and_then(|newest| ends.get(newest));
        let history = between(start.copied(), newest.copied());
        Self { ends, history }
    }

    fn by_text<P, R>(messages: &[Value], rendered: Rendered<'_, P, R>) -> Option<Self>
    where
        P: Iterator<Item = Vec<u8>>,
        R: Fn(&[Value]) -> Option<String>,
    {
        let Rendered { text, pieces, render } = rendered;
        let count = messages.len();
        let asked = first_question(messages).map(|first| first + 1);
        // With the first question comes what all conversations have before it.
        let mut wanted: Vec<usize> = asked.into_iter().flat_map(|asked| [asked - 1, asked]).collect();
        wanted.extend(count.saturating_sub(NEWEST - 1)..=count);
        wanted.retain(|messages| *messages > 0);
        wanted.sort_unstable();
        wanted.dedup();
        let found: Vec<(usize, usize)> = wanted
            .into_iter()
            .filter_map(|before| Some((before, end_of(messages, before, text, &render)?)))
            .collect();
        let bytes: Vec<usize> = found.iter().map(|(_, bytes)| *bytes).collect();
        let places = places(text, pieces, &bytes)?;
        let at = |before: usize| {
            let found = found.iter().position(|(messages, _)| *messages == before);
            found.and_then(|found| places.get(found).copied())
        };
        let history = between(asked.and_then(at), at(count.saturating_sub(1)));
        let mut ends = places;
        ends.sort_unstable();
        ends.dedup();
        ends.retain(|end| *end > 0);
        Some(Self { ends, history })
    }

    /// Both together.
    fn and(mut self, other: Self) -> Self {
        self.ends.extend(other.ends);
        self.ends.sort_unstable();
        self.ends.dedup();
        if self.history.is_empty() {
            self.history = other.history;
        }
        self
    }
}

fn first_question(messages: &[Value]) -> Option<usize> {
    messages.iter().position(|message| message["role"] == "user")
}

fn between(start: Option<usize>, end: Option<usize>) -> Range<usize> {
    match (start, end) {
        (Some(start), Some(end)) if start < end => start..end,
        _ => 0..0,
    }
}

/// The byte of the text at which the first `before` messages end.
fn end_of(
    messages: &[Value],
    before: usize,
    text: &str,
    render: impl Fn(&[Value]) -> Option<String>,
) -> Option<usize> {
    let beginning = messages.get(..before)?;
    let alone = render(beginning);
    if let Some(alone) = &alone {
        let same = common(alone, text);
        if same >= alone.trim_end().len() && beginning.last().is_none_or(|last| shows(alone, last)) {
            return Some(same);
        }
    }
    // Some templates refuse a conversation that ends there, or write its last message in a way of its own. Then what
    // comes before the next message's text has to do.
    let mut marked = messages.to_vec();
    if let Some(next) = marked.get_mut(before) {
        next.as_object_mut()?.insert("content".to_owned(), MARK.into());
        return render(&marked).map(|marked| common(&marked, text));
    }
    alone.map(|alone| common(&alone, text))
}

/// Whether a message's text is there: some templates keep it until the next message comes.
fn shows(text: &str, message: &Value) -> bool {
    message["content"].as_str().is_none_or(|content| text.contains(content.trim()))
}

/// How many bytes two texts have in common.
fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

/// How many tokens lie before each of these bytes of a text. Nothing if the tokens do not spell the text: a tokenizer
/// may rewrite it.
fn places(text: &str, pieces: impl Iterator<Item = Vec<u8>>, bytes: &[usize]) -> Option<Vec<usize>> {
    let text = text.as_bytes();
    let mut places = vec![0; bytes.len()];
    let mut at = 0;
    for (token, piece) in pieces.enumerate() {
        at = after(text, at, &piece)?;
        let reached = places.iter_mut().zip(bytes).filter(|(_, byte)| at <= **byte);
        reached.for_each(|(place, _)| *place = token + 1);
    }
    Some(places)
}

/// Where a text goes on after a piece of it. A token may take the space around it in, or bring a space of its own.
fn after(text: &[u8], at: usize, piece: &[u8]) -> Option<usize> {
    let rest = text.get(at..)?;
    if rest.starts_with(piece) {
        return Some(at + piece.len());
    }
    if let Some(bare) = piece.strip_prefix(b" ")
        && rest.starts_with(bare)
    {
        return Some(at + bare.len());
    }
    let space = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    rest.get(space..)?.starts_with(piece).then_some(at + space + piece.len())
}

#[cfg(test)]
mod tests;
