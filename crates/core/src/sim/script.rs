//! What the model says: a token depends on the request and the position, and on nothing else.

use std::ops::Range;

use super::{Arrival, Scenario, SpanKind};
use crate::outcome::Stop;
use crate::random::mix;
use crate::request::{Goal, Request, Tick, Token};

/// One request's tokens, known from the beginning.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) arrival: Arrival,
    /// Prompt and the longest answer.
    pub(super) tokens: Vec<Token>,
    /// Names the content that position's keys and values must have: all tokens up to it and what they stand for, the
    /// adapter and the salt; inside a span, all that is in it.
    pub(super) contents: Vec<u64>,
    marks: Vec<(usize, u128)>,
    /// Positions that attend to each other.
    pub(super) spans: Vec<Range<usize>>,
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
        let spans = spans(&arrival, voice);
        let mut content = mix(arrival.salt ^ 0xABCD ^ (arrival.adapter << 20));
        let contents = tokens.iter().enumerate().map(|(at, token)| {
            let mark = marks.iter().find(|(place, _)| *place == at).map_or(0, |(_, mark)| *mark as u64);
            content = mix(content.wrapping_add(u64::from(*token) + 1) ^ mark) | 1;
            content
        });
        let mut contents: Vec<u64> = contents.collect();
        for span in spans.iter().filter(|span| span.len() > 1) {
            // Later tokens have seen the span, too.
            let seen = mix(contents[span.end - 1] ^ span.len() as u64);
            for (at, content) in contents.iter_mut().enumerate().skip(span.start) {
                *content = mix(*content ^ seen ^ at as u64) | 1;
            }
        }
        Self { contents, arrival, tokens, marks, spans }
    }

    /// The request that its client sends.
    pub(super) fn request(&self, now: Tick) -> Request {
        Request {
            deadline: self.deadline(now),
            class: self.arrival.class,
            priority: self.arrival.priority,
            tenant: self.arrival.tenant,
            cache_salt: u128::from(self.arrival.salt),
            adapter: self.arrival.adapter.into(),
            mm_hashes: self.marks.clone(),
            spans: self.spans.clone(),
            history: self.arrival.boundaries.first().map_or(0..0, |first| *first..self.arrival.prompt),
            session: self.arrival.session.map(u128::from),
            boundaries: self.arrival.boundaries.clone(),
            ..Request::with_goal(self.tokens[..self.arrival.prompt].to_vec(), self.goal())
        }
    }

    /// What the request is for.
    pub(super) fn goal(&self) -> Goal {
        match self.arrival.max_new_tokens {
            0 => Goal::Compute,
            max_new_tokens => Goal::Generate { max_new_tokens },
        }
    }

    /// Positions of the longest answer that are computed: all but the last sampled token's.
    pub(super) fn computed(&self) -> usize {
        self.tokens.len() - usize::from(self.goal() != Goal::Compute)
    }

    /// The deadline of a request sent at a time.
    pub(super) fn deadline(&self, submitted: Tick) -> Option<Tick> {
        self.arrival.patience.map(|patience| submitted.saturating_add(patience))
    }

    /// Whether the model stops with the token at this position.
    pub(super) fn stop(&self, position: usize) -> Stop {
        let is_last = position + 1 == self.arrival.prompt + self.arrival.answer;
        if is_last { Stop::Yes } else { Stop::No }
    }
}

/// The spans of a request's prompt. `voice`: whose the token at a position is; equal beginnings have equal spans.
fn spans(arrival: &Arrival, voice: impl Fn(usize) -> u64) -> Vec<Range<usize>> {
    let longest = match arrival.spans {
        SpanKind::None => return Vec::new(),
        SpanKind::Prompt => return std::iter::once(0..arrival.prompt).collect(),
        SpanKind::Runs(longest) => longest as u64,
    };
    let (mut spans, mut at) = (Vec::new(), 0);
    while at < arrival.prompt {
        let chance = mix(voice(at) ^ mix(at as u64 + 11));
        if chance.is_multiple_of(3) {
            let end = (at + 1 + (chance >> 32) as usize % longest as usize).min(arrival.prompt);
            spans.push(at..end);
            at = end;
        } else {
            at += 1;
        }
    }
    spans
}
