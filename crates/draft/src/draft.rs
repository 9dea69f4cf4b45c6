//! A draft, and how it is read from the places where the same tokens occurred.

use crate::Token;

/// Least product of a draft's frequencies.
const PROBABILITY_MIN: f64 = 0.1;

/// How long a draft behind a match of so many tokens is at most.
fn longest(matched: usize) -> usize {
    if matched == 0 { 0 } else { 2 * matched + 2 }
}

/// Tokens that may follow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Draft {
    /// The tokens.
    pub tokens: Vec<Token>,
    /// Length of the match that they follow, in tokens.
    pub matched: usize,
    /// How many of them are expected, by their frequencies in the places that matched.
    pub expected: f64,
}

impl Draft {
    /// The one of which more tokens are expected.
    pub fn better(self, other: Self) -> Self {
        if other.expected > self.expected { other } else { self }
    }

    /// The most frequent continuation of `places` in `tokens`, of at most `most` tokens, and not much longer than the match
    /// of `matched` tokens before them. The first place wins among equals; `separator` continues nothing.
    pub(crate) fn read(
        tokens: &[Token],
        mut places: Vec<usize>,
        matched: usize,
        most: usize,
        separator: Token,
    ) -> Self {
        let mut draft = Self { matched, ..Self::default() };
        let mut probability = 1.0;
        while draft.tokens.len() < most.min(longest(matched)) {
            let at = |place: &usize| tokens.get(place + draft.tokens.len()).copied();
            places.retain(|place| at(place).is_some_and(|token| token != separator));
            let mut counts: Vec<(Token, usize)> = Vec::new();
            for token in places.iter().filter_map(at) {
                match counts.iter_mut().find(|(known, _)| *known == token) {
                    Some((_, times)) => *times += 1,
                    None => counts.push((token, 1)),
                }
            }
            let Some((token, times)) = counts.into_iter().rev().max_by_key(|(_, times)| *times) else {
                break;
            };
            probability *= times as f64 / places.len() as f64;
            if probability < PROBABILITY_MIN {
                break;
            }
            let depth = draft.tokens.len();
            places.retain(|place| tokens.get(place + depth) == Some(&token));
            draft.tokens.push(token);
            draft.expected += probability;
        }
        draft
    }
}
