//! From the tokens of a text to its words, and to when they are spoken.
//!
//! Source: openai/whisper `tokenizer.py` and `timing.py` for how tokens are joined to words, and for what is too long for one.

use std::ops::Range;

use crate::error::Failure;
use crate::whisper::tokens::TIME_STEP_S;

/// Marks that are written beside words.
const MARKS: &str = "\"'“”‘’«»「」『』¿¡()[]{}-–—.。,，!！?？:：;；、…";
/// Marks after which a pause may follow.
const SENTENCE_ENDS: &str = ".。!！?？";
/// Languages that put no spaces between words.
const WITHOUT_SPACES: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];
/// Most tokens that a character is divided over: one for each of its bytes.
const TOKENS_OF_CHARACTER_MAX: usize = 4;
/// The median length of words that is assumed at most, in seconds.
const MEDIAN_MAX_S: f64 = 0.7;
/// A word after a pause takes the median length so many times at most.
const LENGTH_MAX: f64 = 2.0;
/// A word may be so many seconds outside of its segment.
const OUTSIDE_MAX_S: f64 = 0.5;

/// A word of a text, without marks and spaces around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenWord {
    pub(super) text: String,
    /// Of the text's tokens, those that are spoken.
    pub(super) tokens: Range<usize>,
    /// The first word of the text, or of a sentence.
    is_first: bool,
}

/// A word, and when it is spoken, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimedWord {
    pub(super) text: String,
    pub(super) start_s: f64,
    pub(super) end_s: f64,
}

/// The words of a text in a language.
pub(super) fn divide(
    tokens: &[u32],
    language: Option<&str>,
    decode: impl Fn(&[u32]) -> Result<String, Failure>,
) -> Result<Vec<TokenWord>, Failure> {
    let has_spaces = language.is_none_or(|code| !WITHOUT_SPACES.contains(&code));
    let (mut words, mut is_first): (Vec<TokenWord>, bool) = (Vec::new(), true);
    let mut open: Option<TokenWord> = None;
    let mut start = 0;
    for end in 1..=tokens.len() {
        let text = decode(tokens.get(start..end).unwrap_or_default())?;
        let is_whole = !text.ends_with(char::REPLACEMENT_CHARACTER);
        if !is_whole && end < tokens.len() && end - start < TOKENS_OF_CHARACTER_MAX {
            continue;
        }
        let is_spoken = !text.trim().chars().all(|mark| MARKS.contains(mark));
        if !has_spaces || text.starts_with(char::is_whitespace) {
            words.extend(open.take());
        }
        match (&mut open, is_spoken) {
            (Some(word), true) => {
                word.text.push_str(&text);
                word.tokens.end = end;
            }
            (None, true) => {
                let first = std::mem::replace(&mut is_first, false);
                open = Some(TokenWord { text: text.clone(), tokens: start..end, is_first: first });
            }
            // Of a word only if more of it follows.
            (Some(word), false) => word.text.push_str(&text),
            (None, false) => {}
        }
        is_first |= text.trim_end().ends_with(|mark| SENTENCE_ENDS.contains(mark));
        start = end;
    }
    words.extend(open);
    for word in &mut words {
        let around = |mark: char| mark.is_whitespace() || MARKS.contains(mark);
        word.text = word.text.trim_matches(around).to_owned();
    }
    words.retain(|word| !word.text.is_empty());
    Ok(words)
}

/// The words of a segment.
pub(super) struct SegmentWords {
    /// Their tokens are counted from the first of the window's text.
    pub(super) words: Vec<TokenWord>,
    /// When all of it is spoken, as the model says, in seconds from the window's start.
    pub(super) spoken: [f64; 2],
}

impl SegmentWords {
    /// `first`: the first of the text's tokens in the window's text.
    pub(super) fn new(mut words: Vec<TokenWord>, first: usize, spoken: [f64; 2]) -> Self {
        for TokenWord { tokens, .. } in &mut words {
            *tokens = tokens.start + first..tokens.end + first;
        }
        Self { words, spoken }
    }
}

/// When the words of each segment are spoken, in seconds from the window's start. `frames`: where each token of the window's
/// text begins, and where the last one ends, in steps of time.
pub(super) fn times(segments: &[SegmentWords], frames: &[usize]) -> Vec<Vec<TimedWord>> {
    let at = |token: usize| frames.get(token).or(frames.last()).map_or(0.0, |at| *at as f64 * TIME_STEP_S);
    let length = |word: &TokenWord| at(word.tokens.end) - at(word.tokens.start);
    let median = median(segments.iter().flat_map(|segment| &segment.words).map(length)).min(MEDIAN_MAX_S);
    let timed = |word: &TokenWord| {
        let (start, end) = (at(word.tokens.start), at(word.tokens.end));
        let earliest = if word.is_first { end - LENGTH_MAX * median } else { 0.0 };
        TimedWord { text: word.text.clone(), start_s: start.max(earliest), end_s: end }
    };
    let of_segment = |SegmentWords { words, spoken: [start, end] }: &SegmentWords| {
        let mut words: Vec<TimedWord> = words.iter().map(timed).collect();
        if let Some(first) = words.first_mut().filter(|first| first.start_s < start - OUTSIDE_MAX_S) {
            first.start_s = start.min(first.end_s - median).max(0.0);
        }
        if let Some(last) = words.last_mut().filter(|last| last.end_s > end + OUTSIDE_MAX_S) {
            last.end_s = end.max(last.start_s + median);
        }
        words
    };
    segments.iter().map(of_segment).collect()
}

/// The median of lengths that are above zero.
fn median(lengths: impl Iterator<Item = f64>) -> f64 {
    let mut lengths: Vec<f64> = lengths.filter(|length| *length > 0.0).collect();
    lengths.sort_unstable_by(f64::total_cmp);
    lengths.get(lengths.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of tokens that are these bytes.
    fn of(pieces: &[&[u8]], language: &str) -> Vec<(String, Range<usize>, bool)> {
        let tokens: Vec<u32> = (0..pieces.len() as u32).collect();
        let decode = |tokens: &[u32]| {
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| pieces[*token as usize].to_vec()).collect();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let words = divide(&tokens, Some(language), decode).unwrap();
        words.into_iter().map(|word| (word.text, word.tokens, word.is_first)).collect()
    }

    fn word(text: &str, tokens: Range<usize>, is_first: bool) -> (String, Range<usize>, bool) {
        (text.to_owned(), tokens, is_first)
    }

    #[test]
    fn spaces_divide_words_and_marks_are_beside_them() {
        let pieces: [&[u8]; 12] =
            [b" (", b"Don", b"'t", b" pan", b"ic", b"!)", b" A", b" well", b"-", b"known", b" 50", b"%"];
        assert_eq!(
            of(&pieces, "en"),
            [
                word("Don't", 1..3, true),
                word("panic", 3..5, false),
                word("A", 6..7, false),
                word("well-known", 7..10, false),
                word("50%", 10..12, false),
            ]
        );
        assert_eq!(
            of(&[b" Yes", b".", b" No", b"..."], "en"),
            [word("Yes", 0..1, true), word("No", 2..3, true)]
        );
        assert_eq!(of(&[b" -", b"."], "en"), []);
    }

    #[test]
    fn a_character_of_several_tokens_is_whole() {
        let [first, rest] = ["é".as_bytes()[..1].to_vec(), "é".as_bytes()[1..].to_vec()];
        assert_eq!(
            of(&[b" caf", &first, &rest, b" no"], "fr"),
            [word("café", 0..3, true), word("no", 3..4, false)]
        );
        // Bytes that are none.
        assert_eq!(of(&[&first, b"b", b" a"], "fr").len(), 2);
    }

    #[test]
    fn languages_without_spaces_have_a_word_for_each_token() {
        let pieces = ["你", "好", "。", "世界"].map(str::as_bytes);
        assert_eq!(
            of(&pieces, "zh"),
            [word("你", 0..1, true), word("好", 1..2, false), word("世界", 3..4, true)]
        );
    }

    #[test]
    fn a_word_after_a_pause_is_not_longer_than_others_allow() {
        let words = [("a", 0..1, true), ("b", 1..2, false), ("c", 2..3, false)];
        let words =
            words.map(|(text, tokens, is_first)| TokenWord { text: text.to_owned(), tokens, is_first });
        let found = |frames: &[usize], spoken| {
            let segment = SegmentWords::new(words.to_vec(), 0, spoken);
            times(&[segment], frames)[0]
                .iter()
                .map(|word| [word.start_s, word.end_s].map(|s| (s * 100.0).round()))
                .collect::<Vec<_>>()
        };
        // Two words of 0.2 s: the first one had 2.
        assert_eq!(found(&[0, 100, 110, 120], [0.0, 3.0]), [[160.0, 200.0], [200.0, 220.0], [220.0, 240.0]]);
        assert_eq!(found(&[100, 110, 120, 220], [0.0, 2.5])[2], [240.0, 260.0]);
        assert_eq!(found(&[100, 110, 120, 130], [2.55, 3.0])[0], [200.0, 220.0]);
    }
}
