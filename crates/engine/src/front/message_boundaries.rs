//! Where the messages of a conversation end in its tokens.
//!
//! Most chat templates end each message with a model's end token, so the tokens show the boundaries. Otherwise the
//! template does: it renders the conversation up to a message, and the message ends where that rendering and the whole
//! one part.
//!
//! Invariant: every boundary lies between two tokens of the prompt. Nothing but speed depends on its being exact. The
//! number of renderings is bounded, however long the conversation.

use std::ops::Range;

use omnibus_text::{Message, Role};

/// Boundaries are searched for this many of the newest messages; earlier requests have searched the others.
const NEWEST: usize = 4;
/// Replaces a message's text. No template gives it a meaning, and no text starts with it.
const MARK: &str = "\u{1}";

/// Where the messages of a prompt end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MessageBoundaries {
    /// One past each message's end, ascending.
    pub(super) ends: Vec<usize>,
    /// From the end of the first user message to the start of the newest message: the part that earlier requests of the
    /// same conversation had, too, and other conversations had not.
    pub(super) history: Range<usize>,
}

/// A conversation as its template rendered it.
pub(super) struct Rendered<'a, P, R> {
    /// The whole text, as it was tokenized.
    pub(super) text: &'a str,
    /// The text of each token.
    pub(super) pieces: P,
    /// Renders other messages, without a generation prompt.
    pub(super) render: R,
}

impl MessageBoundaries {
    /// Finds them by the tokens, if every message ends with a token for which `is_end` holds, else by renderings as well.
    pub(super) fn of<P, R>(
        messages: &[Message],
        prompt: &[u32],
        is_end: impl Fn(u32) -> bool,
        rendered: Option<Rendered<'_, P, R>>,
    ) -> Self
    where
        P: Iterator<Item = Vec<u8>>,
        R: Fn(&[Message]) -> Option<String>,
    {
        let by_tokens = Self::by_tokens(messages, prompt, is_end);
        if by_tokens.ends.len() >= messages.len() {
            return by_tokens;
        }
        match rendered.and_then(|rendered| Self::by_text(messages, rendered)) {
            Some(by_text) => by_text.merge(by_tokens),
            None => by_tokens,
        }
    }

    fn by_tokens(messages: &[Message], prompt: &[u32], is_end: impl Fn(u32) -> bool) -> Self {
        let ends: Vec<usize> =
            prompt.iter().enumerate().filter(|(_, token)| is_end(**token)).map(|(at, _)| at + 1).collect();
        // A template may add a system message.
        let added = ends.len().checked_sub(messages.len());
        let start = match (first_user_message(messages), added) {
            (Some(first), Some(added)) => ends.get(first + added),
            _ => ends.first(),
        };
        let newest = ends.len().checked_sub(2).and_then(|newest| ends.get(newest));
        let history = between(start.copied(), newest.copied());
        Self { ends, history }
    }

    fn by_text<P, R>(messages: &[Message], rendered: Rendered<'_, P, R>) -> Option<Self>
    where
        P: Iterator<Item = Vec<u8>>,
        R: Fn(&[Message]) -> Option<String>,
    {
        let Rendered { text, pieces, render } = rendered;
        let count = messages.len();
        let first = first_user_message(messages).map(|first| first + 1);
        // Before the first user message is what all conversations share.
        let mut wanted: Vec<usize> = first.into_iter().flat_map(|first| [first - 1, first]).collect();
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
        let history = between(first.and_then(at), at(count.saturating_sub(1)));
        let mut ends = places;
        ends.sort_unstable();
        ends.dedup();
        ends.retain(|end| *end > 0);
        Some(Self { ends, history })
    }

    /// The boundaries of both.
    fn merge(mut self, other: Self) -> Self {
        self.ends.extend(other.ends);
        self.ends.sort_unstable();
        self.ends.dedup();
        if self.history.is_empty() {
            self.history = other.history;
        }
        self
    }
}

fn first_user_message(messages: &[Message]) -> Option<usize> {
    messages.iter().position(|message| message.role == Role::User)
}

fn between(start: Option<usize>, end: Option<usize>) -> Range<usize> {
    match (start, end) {
        (Some(start), Some(end)) if start < end => start..end,
        _ => 0..0,
    }
}

/// The byte of the text at which the first `before` messages end.
fn end_of(
    messages: &[Message],
    before: usize,
    text: &str,
    render: impl Fn(&[Message]) -> Option<String>,
) -> Option<usize> {
    let beginning = messages.get(..before)?;
    let alone = render(beginning);
    if let Some(alone) = &alone {
        let same = common(alone, text);
        if same >= alone.trim_end().len() && beginning.last().is_none_or(|last| shows(alone, last)) {
            return Some(same);
        }
    }
    // Some templates refuse a conversation that ends there, or render its last message differently. Then the boundary is
    // the start of the next message's text.
    let mut marked = messages.to_vec();
    if let Some(next) = marked.get_mut(before) {
        *next = next.clone().with_text(MARK);
        return render(&marked).map(|marked| common(&marked, text));
    }
    alone.map(|alone| common(&alone, text))
}

/// Whether a message's text is rendered: some templates defer it until the next message.
fn shows(text: &str, message: &Message) -> bool {
    message.text().is_none_or(|content| text.contains(content.trim()))
}

/// How many bytes two texts have in common.
fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

/// How many tokens precede each of these byte offsets of a text. `None` if the tokens do not spell the text: a tokenizer
/// may normalize it.
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

/// The offset after a token's piece. A token may include the space around it, or add a space.
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
