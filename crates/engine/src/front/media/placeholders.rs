//! The tokens that stand for media in a prompt: placeholders of the chat template are expanded as the model's processor does
//! it, and found again among the tokens.
//!
//! Invariant: there are exactly as many placeholder tokens as features, each run of them where its processor put it. A text
//! that spells a placeholder cannot stand for media: the request is refused.

use std::ops::Range;

use omnibus_media::{Expansion, Piece};
use omnibus_text::ContentPart;

use super::{Prepared, PreparedContent};
use crate::error::Failure;
use crate::media::{GridSpan, JobMedia, MediaKey};
use crate::request::Chat;

/// The media of a prompt, in its order.
#[derive(Debug, Clone, Default)]
pub(crate) struct PromptMedia {
    parts: Vec<Prepared>,
    /// Of each part.
    runs: Vec<Vec<Range<usize>>>,
}

/// A rendering with its placeholders expanded, and how many there are. There may be fewer than parts: a rendering of the
/// first messages. `times`: how often the token of a run of so many features is written.
fn expand(rendered: &str, parts: &[Prepared], times: impl Fn(usize) -> usize) -> (String, usize) {
    let (mut text, mut rest) = (String::with_capacity(rendered.len()), rendered);
    let (mut found, mut numbered) = (0, 0);
    for (index, part) in parts.iter().enumerate() {
        let replaced = part.expansion.replaced_in(rendered, index);
        let Some((before, after)) = rest.split_once(replaced.as_str()) else { break };
        text.push_str(before);
        for piece in &part.expansion.pieces {
            match piece {
                Piece::Features(count) => {
                    text.extend(std::iter::repeat_n(part.expansion.token.as_str(), times(*count)))
                }
                Piece::Text(piece) => text.push_str(piece),
                Piece::Number(first) => text.push_str(&(first + numbered).to_string()),
            }
        }
        numbered += usize::from(part.expansion.pieces.iter().any(|piece| matches!(piece, Piece::Number(_))));
        (rest, found) = (after, found + 1);
    }
    text.push_str(rest);
    (text, found)
}

/// A conversation whose messages have the placeholders of media as text, where no chat template writes them.
pub(crate) fn written(mut chat: Chat, parts: &[Prepared]) -> Chat {
    let mut next = 0;
    for message in &mut chat.messages {
        let mut content: Vec<ContentPart> = Vec::with_capacity(message.content.len());
        for part in std::mem::take(&mut message.content) {
            let is_media =
                matches!(part, ContentPart::Image(_) | ContentPart::Audio(_) | ContentPart::Video(_));
            let expansion = parts.get(next).map(|of| &of.expansion).filter(|_| is_media);
            let number = next;
            next += usize::from(is_media);
            let part = match expansion.filter(|expansion| expansion.is_written()) {
                Some(expansion) => ContentPart::Text(expansion.replaced_in("", number) + "\n"),
                None => part,
            };
            match (content.last_mut(), part) {
                (Some(ContentPart::Text(before)), ContentPart::Text(text)) => before.push_str(&text),
                (_, part) => content.push(part),
            }
        }
        message.content = content;
    }
    chat
}

impl PromptMedia {
    /// A window of sound that all rows of a prompt attend to: its mark stands at the first token.
    pub(crate) fn crossed(window: PreparedContent) -> Self {
        let contents = vec![PreparedContent { features: 1, ..window }];
        let expansion = Expansion::empty("", "");
        let first = std::iter::once(0..1).collect();
        Self { parts: vec![Prepared { contents, expansion, grid: None }], runs: vec![first] }
    }

    /// The rendering of a whole conversation with its placeholders expanded, one for each part and no other. Each run of
    /// features has one token, because a tokenizer takes a millisecond for some thousand.
    pub(crate) fn expand_all(rendered: &str, parts: &[Prepared]) -> Result<String, Failure> {
        let (text, found) = expand(rendered, parts, |count| count.min(1));
        if found < parts.len() {
            let message = "the model's chat template has no place for all media of the messages";
            return Err(Failure::bad_request("messages", message));
        }
        let spellings =
            parts.iter().enumerate().map(|(index, part)| part.expansion.replaced_in(rendered, index));
        let spellings: Vec<String> = spellings.collect();
        let others = |spelling: &&String| {
            let same = spellings.iter().filter(|other| other == spelling).count();
            rendered.matches(spelling.as_str()).count() != same
        };
        match spellings.iter().find(others) {
            Some(spelling) => Err(unplaced(spelling)),
            None => Ok(text),
        }
    }

    /// Finds the media among the tokens of [`Self::expand_all`]'s text, and gives the prompt's tokens, with one for each
    /// feature. `id`: the token that a text is.
    pub(crate) fn find(
        parts: Vec<Prepared>,
        tokens: &[u32],
        id: impl Fn(&str) -> Option<u32>,
    ) -> Result<(Self, Vec<u32>), Failure> {
        let (mut rest, mut prompt) = (tokens, Vec::with_capacity(tokens.len()));
        let mut runs = Vec::with_capacity(parts.len());
        let mut ids = Vec::new();
        for part in &parts {
            let token = &part.expansion.token;
            let id = id(token).ok_or_else(|| unplaced(token))?;
            let mut of_part = Vec::new();
            for piece in &part.expansion.pieces {
                let Piece::Features(count @ 1..) = piece else { continue };
                let at = rest.iter().position(|token| *token == id).ok_or_else(|| unplaced(token))?;
                let (before, after) = rest.split_at(at);
                prompt.extend_from_slice(before);
                of_part.push(prompt.len()..prompt.len() + count);
                prompt.extend(std::iter::repeat_n(id, *count));
                rest = after.get(1..).unwrap_or_default();
            }
            ids.push(id);
            runs.push(of_part);
        }
        prompt.extend_from_slice(rest);
        let placed: usize = runs.iter().map(Vec::len).sum();
        let found = tokens.iter().filter(|token| ids.contains(token)).count();
        match parts.iter().find(|_| found != placed) {
            Some(part) => Err(unplaced(&part.expansion.token)),
            None => Ok((Self { parts, runs }, prompt)),
        }
    }

    /// The media as a job has them. `salt`: only requests of equal salt share features.
    pub(crate) fn of_job(&self, salt: u128) -> Vec<JobMedia> {
        let of = |(part, runs): (&Prepared, &Vec<Range<usize>>)| {
            let mut rest = runs.clone();
            let mut grids = grids(part, runs);
            let of_content = |content: &PreparedContent| {
                let key = MediaKey::new(content.key.bytes(), salt);
                let runs = take_features(&mut rest, content.features);
                let grids = std::mem::take(&mut grids);
                JobMedia { grids, ..JobMedia::of(key, runs, content.pixels.clone()) }
            };
            part.contents.iter().map(of_content).collect::<Vec<_>>()
        };
        self.parts.iter().zip(&self.runs).flat_map(of).collect()
    }

    /// A rendering of some of the conversation's first messages, with its placeholders expanded.
    pub(crate) fn expand(&self, rendered: &str) -> String {
        expand(rendered, &self.parts, |count| count).0
    }
}

/// Takes the first so many positions of some runs.
fn take_features(runs: &mut Vec<Range<usize>>, mut count: usize) -> Vec<Range<usize>> {
    let mut taken = Vec::new();
    while count > 0 && !runs.is_empty() {
        let run = runs.remove(0);
        let len = run.len().min(count);
        taken.push(run.start..run.start + len);
        if len < run.len() {
            runs.insert(0, run.start + len..run.end);
        }
        count -= len;
    }
    taken
}

/// Runs that are grids: one of all frames, or one for each frame. Empty where they are neither.
fn grids(part: &Prepared, runs: &[Range<usize>]) -> Vec<GridSpan> {
    let Some(grid) = part.grid else { return Vec::new() };
    let frame = grid.rows.saturating_mul(grid.columns);
    let span = |run: &Range<usize>| {
        let frames = run.len().checked_div(frame)?;
        let span = GridSpan { first: run.start, frames, rows: grid.rows, columns: grid.columns };
        (frames * frame == run.len()).then_some(span)
    };
    runs.iter().map(span).collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn unplaced(token: &str) -> Failure {
    let message = format!(
        "the messages have `{token}` in another place than their media; leave it out of texts, it stands for media"
    );
    Failure::bad_request("messages", message)
}

#[cfg(test)]
mod tests {
    use omnibus_media::{ContentKey, Expansion, Grid};

    use super::*;
    use crate::media::{EncoderPixels, ViewPixels};

    fn part(pieces: Vec<Piece>) -> Prepared {
        let expansion =
            Expansion { replaces: "<i>".to_owned(), or_replaces: None, token: "<p>".to_owned(), pieces };
        Prepared {
            contents: vec![content(expansion.features())],
            expansion,
            grid: Some(Grid { frames: 1, rows: 1, columns: 2 }),
        }
    }

    fn content(features: usize) -> PreparedContent {
        let pixels = EncoderPixels::new(Vec::<ViewPixels>::new());
        PreparedContent { key: ContentKey::of_bytes(b"a"), features, pixels }
    }

    fn id(text: &str) -> Option<u32> {
        (text == "<p>").then_some(9)
    }

    #[test]
    fn placeholders_are_expanded_in_order() {
        let parts = [part(vec![Piece::Features(2)]), part(vec![Piece::Text("[".into()), Piece::Features(1)])];
        let all = |rendered| expand(rendered, &parts, |count| count);
        assert_eq!(all("a<i>b<i>c"), ("a<p><p>b[<p>c".to_owned(), 2));
        assert_eq!(all("a<i>b"), ("a<p><p>b".to_owned(), 1));
        assert_eq!(PromptMedia::expand_all("a<i>b<i>c", &parts).unwrap(), "a<p>b[<p>c");
    }

    #[test]
    fn features_are_found_among_the_tokens() {
        let parts = vec![part(vec![Piece::Features(2)]), part(vec![Piece::Features(2)])];
        let (found, tokens) = PromptMedia::find(parts, &[1, 9, 2, 9, 3], id).unwrap();
        assert_eq!(tokens, [1, 9, 9, 2, 9, 9, 3]);
        let jobs = found.of_job(0);
        assert_eq!(jobs[0].runs, std::iter::once(1..3).collect::<Vec<_>>());
        assert_eq!(jobs[1].runs, std::iter::once(4..6).collect::<Vec<_>>());
        assert_eq!(jobs[1].grids, [GridSpan { first: 4, frames: 1, rows: 1, columns: 2 }]);
    }

    #[test]
    fn windows_of_a_sound_follow_one_another() {
        let sound = || {
            let part = part(vec![Piece::Features(3), Piece::Text("-".into()), Piece::Features(2)]);
            Prepared { contents: vec![content(2), content(3)], ..part }
        };
        let (found, tokens) = PromptMedia::find(vec![sound()], &[9, 1, 9], id).unwrap();
        assert_eq!(tokens, [9, 9, 9, 1, 9, 9]);
        let runs: Vec<_> = found.of_job(0).into_iter().map(|media| media.runs).collect();
        assert_eq!(runs, [std::iter::once(0..2).collect::<Vec<_>>(), vec![2..3, 4..6]]);
    }

    #[test]
    fn a_placeholder_in_a_text_is_refused() {
        let parts = || vec![part(vec![Piece::Features(2)])];
        for tokens in [&[9, 1, 9][..], &[9, 9, 1], &[1]] {
            assert!(PromptMedia::find(parts(), tokens, id).is_err(), "{tokens:?}");
        }
    }
}
