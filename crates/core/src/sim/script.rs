//! What the model says: a token depends on the request and the position, and on nothing else.

use super::rng::mix;
use super::{Arrival, Scenario};
use crate::{Request, StopKind, Token};

/// One request's tokens, known from the beginning.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) arrival: Arrival,
    /// Prompt and the longest answer.
    pub(super) tokens: Vec<Token>,
    /// Names the content that position's keys and values must have: all tokens up to it, and the salt.
    pub(super) prints: Vec<u64>,
}

impl Script {
    /// The request that is `index`-th of the scenario.
    pub(super) fn new(scenario: &Scenario, index: usize) -> Self {
        let arrival = scenario.arrivals[index].clone();
        let own = mix(index as u64 + 1) | 1;
        let token = |at: usize| {
            let voice = if at < arrival.alike { arrival.conversation } else { own };
            (mix(voice.wrapping_mul(0x1_0001) ^ ((at as u64) << 40)) % 50) as Token
        };
        let tokens: Vec<Token> = (0..arrival.prompt + arrival.max_new_tokens).map(token).collect();
        let mut print = mix(arrival.salt ^ 0xABCD);
        let prints = tokens.iter().map(|token| {
            print = mix(print.wrapping_add(u64::from(*token) + 1)) | 1;
            print
        });
        Self { prints: prints.collect(), arrival, tokens }
    }

    /// What its client asks for.
    pub(super) fn request(&self) -> Request {
        Request {
            deadline: self.arrival.patience.map(|patience| self.arrival.at + patience),
            cache_salt: self.arrival.salt,
            ..Request::new(self.tokens[..self.arrival.prompt].to_vec(), self.arrival.max_new_tokens)
        }
    }

    /// Whether the model stops with the token at this position.
    pub(super) fn stop(&self, position: usize) -> Option<StopKind> {
        (position + 1 == self.arrival.prompt + self.arrival.answer).then_some(StopKind::Token)
    }
}
