//! From the tokens of a window to its segments, and to where the next window begins.
//!
//! Source: openai/whisper `transcribe.py`. A pair of times ends one segment and begins the next; what follows the last
//! pair is left to the next window.

use crate::whisper::tokens::SpeechTokens;

/// A part of a window's tokens; times are in steps from the window's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenSegment {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) tokens: Vec<u32>,
}

/// The segments of a window, and how far the sound is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WindowSegments {
    pub(super) segments: Vec<TokenSegment>,
    /// Steps from the window's start; `None`: all of it.
    pub(super) done: Option<u32>,
}

/// Divides the tokens of a window that is `length` steps long.
pub(super) fn divide(tokens: &[u32], length: u32, speech: &SpeechTokens) -> WindowSegments {
    let time = |at: usize| tokens.get(at).and_then(|token| speech.time(*token));
    let pairs = (1..tokens.len()).filter(|at| time(at - 1).is_some() && time(*at).is_some());
    let mut cuts: Vec<usize> = pairs.collect();
    // One time at the end: nothing is spoken after it.
    let ends_in_one =
        tokens.len() >= 2 && time(tokens.len() - 1).is_some() && time(tokens.len() - 2).is_none();
    if cuts.is_empty() {
        let last = tokens.iter().rev().find_map(|token| speech.time(*token)).filter(|last| *last > 0);
        let segment =
            TokenSegment { start: 0, end: last.unwrap_or(length).min(length), tokens: tokens.to_vec() };
        let segments = if tokens.is_empty() { Vec::new() } else { vec![segment] };
        return WindowSegments { segments, done: None };
    }
    if ends_in_one {
        cuts.push(tokens.len());
    }
    let mut first = 0;
    let mut segments = Vec::with_capacity(cuts.len());
    for cut in &cuts {
        if let (Some(start), Some(end)) = (time(first), time(cut - 1)) {
            let tokens = tokens.get(first..*cut).unwrap_or_default().to_vec();
            segments.push(TokenSegment { start, end: end.min(length), tokens });
        }
        first = *cut;
    }
    let done =
        cuts.last().and_then(|cut| time(cut - 1)).filter(|done| !ends_in_one && (1..length).contains(done));
    WindowSegments { segments, done }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts are below 10, times from 20 on.
    fn speech() -> SpeechTokens {
        SpeechTokens {
            end: 10,
            start: 11,
            languages: std::collections::BTreeMap::new(),
            translate: None,
            transcribe: None,
            previous: None,
            no_speech: None,
            no_times: 19,
            suppressed: Vec::new(),
            not_first: Vec::new(),
            latest_first_time: 70,
            aligned_heads: Vec::new(),
        }
    }

    fn of(tokens: &[u32]) -> (Vec<(u32, u32, usize)>, Option<u32>) {
        let WindowSegments { segments, done } = divide(tokens, 100, &speech());
        (segments.iter().map(|of| (of.start, of.end, of.tokens.len())).collect(), done)
    }

    #[test]
    fn pairs_of_times_divide_a_window() {
        assert_eq!(of(&[20, 1, 2, 30, 30, 3, 45, 46, 4]), (vec![(0, 10, 4), (10, 25, 3)], Some(25)));
    }

    #[test]
    fn one_time_at_the_end_ends_the_window() {
        assert_eq!(of(&[20, 1, 30, 32, 2, 50]), (vec![(0, 10, 3), (12, 30, 3)], None));
        assert_eq!(of(&[20, 1, 50]), (vec![(0, 30, 3)], None));
    }

    #[test]
    fn without_pairs_a_window_is_one_segment() {
        assert_eq!(of(&[20, 1, 2]), (vec![(0, 100, 3)], None));
        assert_eq!(of(&[1, 2]), (vec![(0, 100, 2)], None));
        assert_eq!(of(&[]), (vec![], None));
    }

    #[test]
    fn a_window_always_advances() {
        assert_eq!(of(&[20, 20, 1]).1, None);
        assert_eq!(of(&[20, 1, 220, 220]), (vec![(0, 100, 3)], None));
    }
}
