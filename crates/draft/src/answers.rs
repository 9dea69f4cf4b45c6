//! Recent answers, apart for each salt.

use std::collections::HashMap;
use std::hash::Hash;

use crate::Token;
use crate::draft::Draft;
use crate::history::History;

/// Salts that have answers at most: a client may send a new one with each request.
const SALTS_MAX: usize = 256;
/// Shorter answers have no match that something follows.
const ANSWER_MIN: usize = 3;

/// Recent answers. Drafts for one salt come from answers with the same salt alone: what another tenant was sent shows
/// in the time that an answer takes.
#[derive(Debug)]
pub struct Answers<K> {
    by_salt: HashMap<K, Recent>,
    /// Tokens kept at most, of all salts together.
    max_tokens: usize,
    tokens: usize,
    /// Counts uses.
    clock: u64,
}

/// Answers of one salt, in two halves: the older one goes when the newer one is full.
#[derive(Debug, Default)]
struct Recent {
    newer: History,
    older: History,
    used: u64,
}

impl Recent {
    fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }
}

impl<K: Copy + Eq + Hash> Answers<K> {
    /// Without answers. It keeps `max_tokens` at most.
    pub fn new(max_tokens: usize) -> Self {
        Self { by_salt: HashMap::new(), max_tokens, tokens: 0, clock: 0 }
    }

    /// How many tokens it keeps.
    pub fn len(&self) -> usize {
        self.tokens
    }

    /// True without tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens == 0
    }

    /// Keeps an answer. The salts that were used least recently are removed.
    pub fn add(&mut self, salt: K, answer: &[Token]) {
        if answer.len() < ANSWER_MIN {
            return;
        }
        self.clock += 1;
        let half = self.max_tokens / 2;
        let answer = answer.get(answer.len().saturating_sub(half.saturating_sub(1))..).unwrap_or_default();
        let recent = self.by_salt.entry(salt).or_default();
        recent.used = self.clock;
        self.tokens -= recent.len();
        if recent.newer.len() + answer.len() + 1 > half {
            recent.older = std::mem::take(&mut recent.newer);
        }
        recent.newer.extend(answer);
        recent.newer.separate();
        self.tokens += recent.len();
        while self.tokens > self.max_tokens || self.by_salt.len() > SALTS_MAX {
            let others = self.by_salt.iter().filter(|(other, _)| **other != salt);
            let Some(oldest) = others.min_by_key(|(_, recent)| recent.used).map(|(salt, _)| *salt) else {
                break;
            };
            self.tokens -= self.by_salt.remove(&oldest).map_or(0, |recent| recent.len());
        }
    }

    /// What may follow these tokens, by the answers with this salt.
    pub fn draft_after(&mut self, salt: K, tokens: &[Token], most: usize) -> Draft {
        self.clock += 1;
        let Some(recent) = self.by_salt.get_mut(&salt) else { return Draft::default() };
        recent.used = self.clock;
        recent.newer.draft_after(tokens, most).better(recent.older.draft_after(tokens, most))
    }
}
