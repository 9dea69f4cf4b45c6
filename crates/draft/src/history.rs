//! Tokens, and where each two of them occurred before.

use std::collections::HashMap;

use crate::Token;
use crate::draft::Draft;

/// Tokens that a match needs at least; each such run is indexed.
const KEY: usize = 2;
/// Tokens of a match that are compared at most: longer ones count as equal.
const MATCH_MAX: usize = 24;
/// Places that are compared at most, the newest first.
const PLACES_MAX: usize = 64;
/// Between texts that do not follow each other. No vocabulary has so many tokens.
const SEPARATOR: Token = Token::MAX;

/// Tokens, and where each two of them occurred before. Adding a token and drafting take constant time.
#[derive(Debug, Clone, Default)]
pub struct History {
    tokens: Vec<Token>,
    /// Behind the newest occurrence of two tokens.
    newest: HashMap<[Token; KEY], u32>,
    /// For the place behind each token, the place behind the occurrence before of the same two.
    earlier: Vec<Option<u32>>,
}

impl History {
    /// How many tokens it holds.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True without tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Adds tokens that follow those before.
    pub fn extend(&mut self, tokens: &[Token]) {
        for token in tokens {
            self.tokens.push(*token);
            let earlier = match self.tokens.last_chunk::<KEY>() {
                Some(key) if !key.contains(&SEPARATOR) => {
                    let place = u32::try_from(self.tokens.len()).ok();
                    place.and_then(|place| self.newest.insert(*key, place))
                }
                _ => None,
            };
            self.earlier.push(earlier);
        }
    }

    /// What is added next does not follow what is there.
    pub fn separate(&mut self) {
        self.extend(&[SEPARATOR]);
    }

    /// What may follow its own tokens, `most` tokens at most.
    pub fn draft(&self, most: usize) -> Draft {
        let newest = self.earlier.last().copied().flatten();
        self.draft_from(newest, &self.tokens, most)
    }

    /// What may follow these tokens, by what followed them here.
    pub fn draft_after(&self, tokens: &[Token], most: usize) -> Draft {
        let newest = tokens.last_chunk::<KEY>().and_then(|key| self.newest.get(key)).copied();
        self.draft_from(newest, tokens, most)
    }

    /// The draft behind the longest matches among the places that begin with `newest`.
    fn draft_from(&self, newest: Option<u32>, suffix: &[Token], most: usize) -> Draft {
        let chain = std::iter::successors(newest, |place| {
            self.earlier.get((*place as usize).checked_sub(1)?).copied().flatten()
        });
        let (mut longest, mut places) = (0, Vec::new());
        for place in chain.take(PLACES_MAX).map(|place| place as usize) {
            let matched = self.matched(place, suffix);
            if matched > longest {
                longest = matched;
                places.clear();
            }
            if matched == longest {
                places.push(place);
            }
        }
        Draft::read(&self.tokens, places, longest, most, SEPARATOR)
    }

    /// How many tokens before `place` are the last ones of `suffix`.
    fn matched(&self, place: usize, suffix: &[Token]) -> usize {
        let before = self.tokens.get(..place).unwrap_or_default();
        let pairs = before.iter().rev().zip(suffix.iter().rev()).take(MATCH_MAX);
        pairs.take_while(|(before, wanted)| before == wanted && **before != SEPARATOR).count()
    }
}
