//! What the model says: a token depends on the request and the position, and on nothing else.

use super::{Arrival, Scenario};
use crate::random::mix;
use crate::{Request, StopKind, Tick, Token};

/// One request's tokens, known from the beginning.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) arrival: Arrival,
    /// Prompt and the longest answer.
    pub(super) tokens: Vec<Token>,
    /// Names the content that position's keys and values must have: all tokens up to it and what they stand for, the
    /// adapter and the salt.
    pub(super) contents: Vec<u64>,
    marks: Vec<(usize, u128)>,
}

impl Script {
    /// The request that is `index`-th of the scenario.
    pub(super) fn new(scenario: &Scenario, index: usize) -> Self {
        let arrival = scenario.arrivals[index].clone();
        let own = mix(index as u64 + 1) | 1;
        let voice = |at: usize| if at < arrival.alike { arrival.conversation } else { own };
        let token = |at: usize| {
            let voice = voice(at);
            (mix(voice.wrapping_mul(0x1_0001) ^ ((at as u64) << 40)) % 50) as Token
        };
        let tokens: Vec<Token> = (0..arrival.prompt + arrival.max_new_tokens).map(token).collect();
        let mark = |at: usize| mix(voice(at) ^ mix(at as u64 + 3));
        let marked = (0..arrival.prompt).filter(|at| arrival.marks && mark(*at).is_multiple_of(9));
        let marks: Vec<(usize, u128)> = marked.map(|at| (at, u128::from(mark(at)))).collect();
        let mut content = mix(arrival.salt ^ 0xABCD ^ (arrival.adapter << 20));
        let contents = tokens.iter().enumerate().map(|(at, token)| {
            let mark = marks.iter().find(|(place, _)| *place == at).map_or(0, |(_, mark)| *mark as u64);
            content = mix(content.wrapping_add(u64::from(*token) + 1) ^ mark) | 1;
            content
        });
        Self { contents: contents.collect(), arrival, tokens, marks }
    }

    /// The request that its client sends.
    pub(super) fn request(&self, now: Tick) -> Request {
        Request {
            deadline: self.deadline(now),
            priority: self.arrival.priority,
            draft_tokens: self.arrival.draft_tokens,
            tenant: self.arrival.tenant,
            cache_salt: u128::from(self.arrival.salt),
            adapter: self.arrival.adapter.into(),
            mm_hashes: self.marks.clone(),
            history: self.arrival.boundaries.first().map_or(0..0, |first| *first..self.arrival.prompt),
            session: self.arrival.session.map(u128::from),
            boundaries: self.arrival.boundaries.clone(),
            ..Request::new(self.tokens[..self.arrival.prompt].to_vec(), self.arrival.max_new_tokens)
        }
    }

    /// The deadline of a request sent at a time.
    pub(super) fn deadline(&self, submitted: Tick) -> Option<Tick> {
        self.arrival.patience.map(|patience| submitted.saturating_add(patience))
    }

    /// Whether the model stops with the token at this position.
    pub(super) fn stop(&self, position: usize) -> Option<StopKind> {
        (position + 1 == self.arrival.prompt + self.arrival.answer).then_some(StopKind::Token)
    }
}
