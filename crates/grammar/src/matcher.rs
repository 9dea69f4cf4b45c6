//! Which tokens may follow in one sequence, and which must.
//!
//! Forced tokens: where the grammar allows only one continuation, its bytes are tokenized as the tokenizer would, up to
//! where another continuation could tokenize them otherwise. These tokens are the only ones that [`Matcher::mask`] allows,
//! whether they are appended without sampling or sampled one by one, so both ways give equal tokens.

use std::collections::VecDeque;

use omnibus_text::catch_panic;

use crate::compiled::Compiled;
use crate::error::GrammarError;
use crate::mask::TokenMask;
use crate::opening::Opening;
use crate::vocabulary::Vocabulary;

/// The state of one sequence's grammar.
pub struct Matcher {
    compiled: Compiled,
    engine: llguidance::Matcher,
    vocabulary: Vocabulary,
    /// Sorted.
    stop_tokens: Vec<u32>,
    phase: Phase,
    /// The text that begins the grammar wherever the model writes it.
    marker: Option<String>,
    /// The token that is the marker, where the vocabulary has one: then no other text begins the grammar.
    marker_token: Option<u32>,
    /// Tokens that must follow, accepted by the engine already.
    forced: VecDeque<u32>,
    accepted: usize,
}

/// Where a sequence is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// At its first token, which may open reasoning.
    Start { opening: Vec<u32>, closing: String },
    /// In reasoning, up to the text that ends it.
    Reasoning { closing: String, tail: Vec<u8> },
    /// Right after reasoning, where models write line breaks before the answer.
    Gap,
    /// In text before a marker.
    Text { tail: Vec<u8> },
    /// In the grammar.
    Grammar,
}

/// The state after a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchState {
    /// More must or may follow.
    Open,
    /// Nothing may follow.
    Finished,
}

/// Tokens that must follow, and the state after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    /// The tokens; mostly none.
    pub tokens: Vec<u32>,
    /// The state after the last of them.
    pub state: MatchState,
}

impl Matcher {
    /// The matcher of a sequence that begins as `opening` says. `stop_tokens` end it, and are allowed where the grammar
    /// may end.
    pub fn new(compiled: &Compiled, opening: &Opening, stop_tokens: &[u32]) -> Self {
        let Opening { reasoning, marker } = opening.clone();
        let phase = match reasoning {
            Some(reasoning) if reasoning.opening.is_empty() => {
                Phase::Reasoning { closing: reasoning.closing, tail: Vec::new() }
            }
            Some(reasoning) => Phase::Start { opening: reasoning.opening, closing: reasoning.closing },
            None if marker.is_some() => Phase::Text { tail: Vec::new() },
            None => Phase::Grammar,
        };
        let marker_token = marker.as_deref().and_then(|marker| compiled.vocabulary().token_of(marker));
        let mut stop_tokens = stop_tokens.to_vec();
        stop_tokens.sort_unstable();
        Self {
            compiled: compiled.clone(),
            engine: compiled.fresh(),
            vocabulary: compiled.vocabulary().clone(),
            stop_tokens,
            phase,
            marker,
            marker_token,
            forced: VecDeque::new(),
            accepted: 0,
        }
    }

    /// What it was made from.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// Tokens accepted so far.
    pub fn accepted(&self) -> usize {
        self.accepted
    }

    /// Takes the next token of the sequence.
    pub fn accept(&mut self, token: u32) -> Result<MatchState, GrammarError> {
        self.accepted += 1;
        self.guarded(|matcher| matcher.advance(token))
    }

    /// Takes the tokens that must follow, at most `most` of them. They count as accepted.
    pub fn take_forced(&mut self, most: usize) -> Result<Forced, GrammarError> {
        let forced = self.guarded(|matcher| {
            let mut tokens = Vec::new();
            let mut state = MatchState::Open;
            while tokens.len() < most && state == MatchState::Open {
                matcher.find_forced();
                let Some(token) = matcher.forced.front().copied() else { break };
                state = matcher.advance(token)?;
                tokens.push(token);
            }
            Ok(Forced { tokens, state })
        })?;
        self.accepted += forced.tokens.len();
        Ok(forced)
    }

    /// The tokens that may follow. At least one may.
    pub fn mask(&mut self) -> Result<TokenMask, GrammarError> {
        let mask = self.guarded(Self::compute_mask)?;
        match mask.is_empty() {
            true => Err(GrammarError::at("", "no token of this model may follow")),
            false => Ok(mask),
        }
    }

    /// How many of these draft tokens may follow each other, as far as that is known without computing masks.
    pub fn valid_drafts(&mut self, drafts: &[u32]) -> usize {
        if self.phase != Phase::Grammar {
            return drafts.len();
        }
        let forced = self.forced.iter().zip(drafts);
        let differs = forced.clone().position(|(forced, draft)| forced != draft);
        let valid = self.guarded(|matcher| {
            matcher.engine.validate_tokens(drafts).map_err(|error| GrammarError::of_engine(&error))
        });
        valid.unwrap_or(0).min(differs.unwrap_or(drafts.len()))
    }

    /// The mask of the token after each of these draft tokens, up to the first that may not follow or that ends the text.
    /// `mask`: that of the next token. The matcher stays where it is.
    pub fn masks_after(&self, drafts: &[u32], mask: &TokenMask) -> Vec<TokenMask> {
        let mut ahead = self.copy();
        let mut masks: Vec<TokenMask> = Vec::with_capacity(drafts.len());
        for draft in drafts {
            if !masks.last().unwrap_or(mask).allows(*draft) || self.stop_tokens.contains(draft) {
                break;
            }
            let Ok(MatchState::Open) = ahead.accept(*draft) else { break };
            let Ok(next) = ahead.mask() else { break };
            masks.push(next);
        }
        masks
    }

    /// One in the same state, which goes its own way.
    fn copy(&self) -> Self {
        Self {
            compiled: self.compiled.clone(),
            engine: self.engine.deep_clone(),
            vocabulary: self.vocabulary.clone(),
            stop_tokens: self.stop_tokens.clone(),
            phase: self.phase.clone(),
            marker: self.marker.clone(),
            marker_token: self.marker_token,
            forced: self.forced.clone(),
            accepted: self.accepted,
        }
    }

    fn advance(&mut self, token: u32) -> Result<MatchState, GrammarError> {
        match std::mem::replace(&mut self.phase, Phase::Grammar) {
            Phase::Start { opening, closing } if opening.contains(&token) => {
                self.phase = Phase::Reasoning { closing, tail: Vec::new() };
            }
            Phase::Start { .. } | Phase::Gap => {
                if !self.is_blank(token) || self.engine_allows(token) {
                    return self.enter_with(token);
                }
                self.phase = Phase::Gap;
            }
            Phase::Reasoning { closing, mut tail } => {
                self.phase = match self.reaches(&closing, &mut tail, token) {
                    true => Phase::Gap,
                    false => Phase::Reasoning { closing, tail },
                };
            }
            Phase::Text { mut tail } => {
                let marker = self.marker.clone().unwrap_or_default();
                let begins = match self.marker_token {
                    Some(of) => token == of,
                    None => self.reaches(&marker, &mut tail, token),
                };
                if !begins {
                    self.phase = Phase::Text { tail };
                }
            }
            Phase::Grammar => return self.advance_grammar(token),
        }
        Ok(MatchState::Open)
    }

    /// Behind reasoning: the grammar, or text with markers.
    fn enter_with(&mut self, token: u32) -> Result<MatchState, GrammarError> {
        match self.marker {
            Some(_) => {
                self.phase = Phase::Text { tail: Vec::new() };
                self.advance(token)
            }
            None => self.advance_grammar(token),
        }
    }

    fn advance_grammar(&mut self, token: u32) -> Result<MatchState, GrammarError> {
        match self.forced.pop_front() {
            Some(forced) if forced == token => {}
            _ => self.forced.clear(),
        }
        self.engine.consume_token(token).map_err(|error| GrammarError::of_engine(&error))?;
        if !self.engine.is_stopped() {
            return Ok(MatchState::Open);
        }
        if let Some(error) = self.engine.get_error() {
            return Err(GrammarError::of_engine(&error));
        }
        match self.marker {
            None => Ok(MatchState::Finished),
            Some(_) => {
                self.engine = self.compiled.fresh();
                self.phase = Phase::Text { tail: Vec::new() };
                Ok(MatchState::Open)
            }
        }
    }

    /// Computes the tokens that must follow, unless some are known. They follow from the tokens accepted so far.
    fn find_forced(&mut self) {
        if self.phase == Phase::Grammar && self.forced.is_empty() {
            let tokens = self.engine.compute_ff_tokens();
            self.forced.extend(tokens.into_iter().filter(|token| (*token as usize) < self.vocabulary.size));
        }
    }

    fn compute_mask(&mut self) -> Result<TokenMask, GrammarError> {
        let size = self.vocabulary.size;
        match self.phase.clone() {
            Phase::Text { .. } if self.marker_token.is_some() => Ok(TokenMask::all(size)),
            Phase::Text { tail } => {
                let marker = self.marker.clone().unwrap_or_default();
                Ok(self.without_overruns(TokenMask::all(size), &marker, &tail))
            }
            Phase::Reasoning { closing, tail } => {
                let mut mask = TokenMask::all(size);
                self.stop_tokens.iter().for_each(|token| mask.set(*token, false));
                Ok(self.without_overruns(mask, &closing, &tail))
            }
            Phase::Start { .. } | Phase::Gap if self.marker.is_some() => Ok(TokenMask::all(size)),
            Phase::Start { opening, .. } => {
                let mut mask = self.grammar_mask()?;
                opening.iter().for_each(|token| mask.set(*token, true));
                Ok(mask)
            }
            Phase::Gap => {
                let mut mask = self.grammar_mask()?;
                let env = &self.vocabulary.env;
                for blank in ["\n", "\n\n"] {
                    env.tok_trie()
                        .token_id(blank.as_bytes())
                        .into_iter()
                        .for_each(|token| mask.set(token, true));
                }
                Ok(mask)
            }
            Phase::Grammar => self.grammar_mask(),
        }
    }

    fn grammar_mask(&mut self) -> Result<TokenMask, GrammarError> {
        let size = self.vocabulary.size;
        if self.phase == Phase::Grammar {
            self.find_forced();
            if let Some(token) = self.forced.front() {
                return Ok(TokenMask::only(*token, size));
            }
        }
        let words = self.engine.compute_mask().map_err(|error| GrammarError::of_engine(&error))?;
        let mut mask = TokenMask::from_words(words.as_slice(), size);
        if words.is_allowed(size as u32) {
            self.stop_tokens.iter().for_each(|token| mask.set(*token, true));
        }
        Ok(mask)
    }

    /// Whether the text reaches the end of `marker` with this token. `tail`: the bytes since the last one.
    fn reaches(&self, marker: &str, tail: &mut Vec<u8>, token: u32) -> bool {
        tail.extend_from_slice(&self.bytes(token));
        let found = find(tail, marker.as_bytes()).is_some();
        let kept = tail.len().saturating_sub(marker.len().saturating_sub(1));
        tail.drain(..kept);
        found
    }

    /// Forbids tokens that end the marker and go on with more than whitespace, which the grammar would not see.
    fn without_overruns(&self, mut mask: TokenMask, marker: &str, tail: &[u8]) -> TokenMask {
        let begun = (1..marker.len()).rev().find(|len| tail.ends_with(&marker.as_bytes()[..*len]));
        let Some(begun) = begun else { return mask };
        let rest = &marker.as_bytes()[begun..];
        for token in 0..self.vocabulary.size as u32 {
            let bytes = self.vocabulary.env.tok_trie().token(token);
            let behind = bytes.strip_prefix(rest);
            if behind.is_some_and(|behind| !behind.iter().all(u8::is_ascii_whitespace)) {
                mask.set(token, false);
            }
        }
        mask
    }

    /// The token's text, that of special tokens included.
    fn bytes(&self, token: u32) -> Vec<u8> {
        self.vocabulary.text(token)
    }

    fn is_blank(&self, token: u32) -> bool {
        let bytes = self.bytes(token);
        !bytes.is_empty() && bytes.iter().all(u8::is_ascii_whitespace)
    }

    fn engine_allows(&mut self, token: u32) -> bool {
        self.marker.is_none() && self.engine.validate_tokens(&[token]).is_ok_and(|valid| valid == 1)
    }

    /// A panic in the engine fails this sequence alone.
    fn guarded<T>(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<T, GrammarError>,
    ) -> Result<T, GrammarError> {
        catch_panic(|| call(self))
            .unwrap_or_else(|_| Err(GrammarError::at("", "the grammar's matcher failed on this text")))
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len().max(1)).position(|window| window == part)
}
