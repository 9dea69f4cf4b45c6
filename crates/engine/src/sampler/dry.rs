//! The penalty of tokens that would continue a repetition.
//!
//! Invariant: penalties follow from the tokens and the parameters alone; the time is linear in the tokens that are searched.

use std::collections::{BTreeMap, BTreeSet};

use crate::request::Dry;

/// One sequence's penalty.
#[derive(Debug, Clone)]
pub(super) struct DryPenalty {
    multiplier: f64,
    base: f64,
    allowed_length: usize,
    context: usize,
    /// By their first token, what follows it in each.
    breakers: BTreeMap<u32, BTreeSet<Vec<u32>>>,
}

impl DryPenalty {
    /// `None` if there is no penalty. `breakers`: the tokens of each.
    pub(super) fn new(dry: &Dry, breakers: &[Vec<u32>]) -> Option<Self> {
        let mut by_head: BTreeMap<u32, BTreeSet<Vec<u32>>> = BTreeMap::new();
        for breaker in breakers {
            if let Some((head, tail)) = breaker.split_first() {
                by_head.entry(*head).or_default().insert(tail.to_vec());
            }
        }
        dry.is_on().then(|| Self {
            multiplier: f64::from(dry.multiplier),
            base: f64::from(dry.base),
            allowed_length: dry.allowed_length,
            context: dry.context,
            breakers: by_head,
        })
    }

    /// What is subtracted from the logits of which tokens, after a sequence's tokens and the draft tokens behind them.
    pub(super) fn penalties(&self, tokens: &[u32], drafts: &[u32]) -> BTreeMap<u32, f32> {
        let last = drafts.iter().rev().chain(tokens.iter().rev());
        let reversed: Vec<u32> = last.take(self.context).copied().collect();
        let limit = self.tokens_since_breaker(&reversed);
        if limit < self.allowed_length || reversed.len() <= self.allowed_length {
            return BTreeMap::new();
        }
        let mut longest: BTreeMap<u32, usize> = BTreeMap::new();
        // What stands `at` tokens before the end ends like the whole; the token after it is one nearer to the end.
        for (next, length) in reversed.iter().zip(common_prefixes(&reversed).into_iter().skip(1)) {
            let length = length.min(limit);
            if length >= self.allowed_length {
                let longest = longest.entry(*next).or_default();
                *longest = length.max(*longest);
            }
        }
        longest.retain(|token, _| !self.breakers.get(token).is_some_and(|tails| tails.contains(&Vec::new())));
        longest.into_iter().map(|(token, length)| (token, self.penalty(length))).collect()
    }

    fn penalty(&self, length: usize) -> f32 {
        let power = length.saturating_sub(self.allowed_length);
        let penalty = self.multiplier * self.base.powf(power as f64);
        // An infinite one would leave a row without tokens.
        penalty.min(f64::from(f32::MAX) / 4.0) as f32
    }

    /// How many tokens are behind the last breaker. `reversed`: the last token first.
    fn tokens_since_breaker(&self, reversed: &[u32]) -> usize {
        let ended = |(at, head): (usize, &u32)| {
            let tails = self.breakers.get(head)?;
            let behind = reversed.get(..at).unwrap_or_default();
            let stands = |tail: &&Vec<u32>| {
                tail.len() <= at && behind.iter().rev().zip(tail.iter()).all(|(one, other)| one == other)
            };
            let longest = tails.iter().filter(stands).map(Vec::len).max()?;
            Some(at - longest)
        };
        reversed.iter().enumerate().find_map(ended).unwrap_or(reversed.len())
    }
}

/// How many leading tokens each end of a list has in common with the whole (the Z-function); 0 for the whole itself.
fn common_prefixes(tokens: &[u32]) -> Vec<usize> {
    let mut lengths = vec![0_usize; tokens.len()];
    // The match that reaches furthest.
    let (mut start, mut end) = (0, 0);
    for at in 1..tokens.len() {
        let known = if at < end { lengths[at - start].min(end - at) } else { 0 };
        let more = tokens[known..].iter().zip(&tokens[at + known..]).take_while(|(one, other)| one == other);
        lengths[at] = known + more.count();
        if at + lengths[at] > end {
            (start, end) = (at, at + lengths[at]);
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use omnibus_core::random::Rng;

    use super::*;

    fn penalty(multiplier: f32, allowed_length: usize, breakers: &[Vec<u32>]) -> DryPenalty {
        let dry = Dry { multiplier, base: 2.0, allowed_length, ..Dry::default() };
        DryPenalty::new(&dry, breakers).unwrap()
    }

    #[track_caller]
    fn check(tokens: &[u32], breakers: &[Vec<u32>], want: &[(u32, f32)]) {
        let found = penalty(0.5, 2, breakers).penalties(tokens, &[]);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), want);
    }

    #[test]
    fn what_followed_the_same_tokens_before_has_a_penalty_that_grows_with_them() {
        check(&[1, 2, 3, 9, 1, 2], &[], &[(3, 0.5)]);
        check(&[7, 1, 2, 3, 9, 7, 1, 2], &[], &[(3, 1.0)]);
        check(&[6, 7, 1, 2, 3, 8, 1, 2, 4, 6, 7, 1, 2], &[], &[(3, 2.0), (4, 0.5)]);
        check(&[1, 2, 3, 9, 5, 2], &[], &[]);
        check(&[5, 5, 5, 5], &[], &[(5, 1.0)]);
    }

    #[test]
    fn a_repetition_does_not_reach_over_a_breaker() {
        let tokens = [6, 7, 1, 2, 3, 9, 6, 7, 1, 2];
        check(&tokens, &[], &[(3, 2.0)]);
        check(&tokens, &[vec![6]], &[(3, 1.0)]);
        check(&tokens, &[vec![7]], &[(3, 0.5)]);
        check(&tokens, &[vec![1]], &[]);
        // A breaker of two tokens, and one that does not stand there.
        check(&tokens, &[vec![6, 7]], &[(3, 0.5)]);
        check(&tokens, &[vec![6, 1]], &[(3, 2.0)]);
    }

    #[test]
    fn a_token_that_is_a_breaker_has_no_penalty() {
        check(&[1, 2, 3, 1, 2], &[vec![3]], &[]);
        check(&[1, 2, 3, 9, 1, 2], &[vec![3, 3]], &[(3, 0.5)]);
    }

    #[test]
    fn draft_tokens_count_as_tokens_and_the_context_is_the_last_ones() {
        let dry = penalty(0.5, 2, &[]);
        assert_eq!(dry.penalties(&[1, 2, 3, 9, 1], &[2]), dry.penalties(&[1, 2, 3, 9, 1, 2], &[]));
        let short = Dry { multiplier: 1.0, context: 4, ..Dry::default() };
        let short = DryPenalty::new(&short, &[]).unwrap();
        assert!(short.penalties(&[1, 2, 3, 9, 1, 2], &[]).is_empty());
    }

    #[test]
    fn no_length_makes_a_penalty_infinite() {
        let found = penalty(100.0, 1, &[]).penalties(&[5; 4000], &[]);
        assert!(found[&5].is_finite());
        assert!(DryPenalty::new(&Dry::default(), &[]).is_none());
    }

    /// Each token's penalty by the definition: every place is compared with the end.
    fn by_definition(dry: &DryPenalty, tokens: &[u32]) -> BTreeMap<u32, f32> {
        let tokens = &tokens[tokens.len() - tokens.len().min(dry.context)..];
        let breaks = |token: &u32| dry.breakers.contains_key(token);
        let limit = tokens.iter().rev().take_while(|token| !breaks(token)).count();
        let mut penalties: BTreeMap<u32, f32> = BTreeMap::new();
        for next in 1..tokens.len() {
            let pairs = tokens[..next].iter().rev().zip(tokens.iter().rev());
            let length = pairs.take_while(|(one, other)| one == other).count().min(limit);
            if length >= dry.allowed_length && tokens.len() > dry.allowed_length && !breaks(&tokens[next]) {
                let penalty = dry.multiplier * dry.base.powi((length - dry.allowed_length) as i32);
                let most = penalties.entry(tokens[next]).or_default();
                *most = most.max(penalty as f32);
            }
        }
        penalties
    }

    #[test]
    fn random_tokens_have_the_penalties_of_the_definition() {
        let mut found_some = 0;
        for seed in 0..400 {
            let mut rng = Rng::new(seed);
            let kinds = rng.within(2..=6);
            let tokens: Vec<u32> = (0..rng.within(0..=80)).map(|_| rng.within(0..=kinds) as u32).collect();
            let breakers = if rng.one_in(2) { vec![vec![0]] } else { Vec::new() };
            let context = if rng.one_in(3) { rng.within(1..=40) } else { usize::MAX };
            let dry = Dry {
                multiplier: 1.5,
                base: 1.25,
                allowed_length: rng.within(0..=4),
                context,
                ..Dry::default()
            };
            let dry = DryPenalty::new(&dry, &breakers).unwrap();
            let found = dry.penalties(&tokens, &[]);
            let want = by_definition(&dry, &tokens);
            assert_eq!(found.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "seed {seed}");
            found.iter().for_each(|(token, penalty)| {
                assert!((penalty - want[token]).abs() < 1e-3 * penalty, "seed {seed}")
            });
            found_some += usize::from(!found.is_empty());
        }
        assert!(found_some > 150, "{found_some}");
    }
}
