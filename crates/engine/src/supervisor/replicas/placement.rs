//! Which replica a job goes to: the one that has its session, or most of its prompt's prefix, unless it has much more to do.
//!
//! Invariant: no threads, no clock, no processes. A wrong guess of what a replica has cached costs time and no token.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Tokens of a block: prefixes are compared in whole ones.
const BLOCK_TOKENS: usize = 32;
/// Jobs that a replica may have beyond twice those of the least busy one, and still get jobs for their prefix.
const SLACK_JOBS: usize = 8;
/// Blocks of a generation. The last two generations are remembered, some 3 MB.
const GENERATION_BLOCKS: usize = 1 << 16;
/// The most replicas, one bit each.
pub(in crate::supervisor) const REPLICAS_MAX: usize = 64;

/// What decides where a job goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Its prompt.
    pub(super) tokens: &'a [u32],
    /// Jobs with different ones share no blocks.
    pub(super) salt: u128,
    /// Its session, whose blocks are kept where it was computed last.
    pub(super) session: Option<u128>,
}

/// Which replicas got which prefixes.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The replicas that got a prefix, by its hash, one bit each.
    young: HashMap<u64, u64>,
    /// The replicas of the generation before.
    old: HashMap<u64, u64>,
    /// Tokens of the prompts that each replica got.
    placed: Vec<usize>,
}

/// What the replicas may have of a prompt.
struct Hashes {
    session: Option<u64>,
    /// Of all prefixes in whole blocks, the shortest first.
    prefixes: Vec<u64>,
}

impl Placement {
    /// The replica for a job. `open`: the jobs of each replica, or `None` where its process does not run. Of replicas with
    /// equally much to do it is the one that got the fewest tokens of prompts; where none runs, the first of all.
    pub(super) fn place(&mut self, wanted: Wanted<'_>, open: &[Option<usize>]) -> usize {
        let running = open.iter().enumerate().filter_map(|(replica, open)| Some((replica, (*open)?)));
        let least = running.clone().map(|(_, open)| open).min().unwrap_or(0);
        let limit = least.saturating_mul(2).saturating_add(SLACK_JOBS);
        let hashes = hashes(wanted);
        self.placed.resize(open.len().max(self.placed.len()), 0);
        let rank = |(replica, open): (usize, usize)| {
            let placed = self.placed.get(replica).copied().unwrap_or(0);
            (self.matched(&hashes, replica), Reverse((open, placed, replica)))
        };
        let best = running.filter(|(_, open)| *open <= limit).map(rank).max();
        let replica = best.map_or(0, |(_, Reverse((_, _, replica)))| replica);
        self.remember(&hashes, replica);
        if let Some(placed) = self.placed.get_mut(replica) {
            *placed = placed.saturating_add(wanted.tokens.len());
        }
        replica
    }

    /// A replica's process has ended, and its cache with it.
    pub(super) fn forget(&mut self, replica: usize) {
        let others = !bit(replica);
        for prefixes in [&mut self.young, &mut self.old] {
            prefixes.retain(|_, replicas| {
                *replicas &= others;
                *replicas != 0
            });
        }
    }

    /// Whether a replica got the session, and how many of the leading prefixes.
    fn matched(&self, hashes: &Hashes, replica: usize) -> (bool, usize) {
        let has = |hash: &&u64| {
            let of = |prefixes: &HashMap<u64, u64>| prefixes.get(hash).copied().unwrap_or(0);
            (of(&self.young) | of(&self.old)) & bit(replica) != 0
        };
        let session = hashes.session.as_ref().is_some_and(|session| has(&session));
        (session, hashes.prefixes.iter().take_while(has).count())
    }

    fn remember(&mut self, hashes: &Hashes, replica: usize) {
        for hash in hashes.session.iter().chain(&hashes.prefixes) {
            *self.young.entry(*hash).or_default() |= bit(replica);
        }
        if self.young.len() > GENERATION_BLOCKS {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

fn bit(replica: usize) -> u64 {
    1 << (replica % REPLICAS_MAX)
}

fn hashes(Wanted { tokens, salt, session }: Wanted<'_>) -> Hashes {
    let mut hasher = DefaultHasher::new();
    salt.hash(&mut hasher);
    let session = session.map(|session| {
        let mut of_session = hasher.clone();
        session.hash(&mut of_session);
        of_session.finish()
    });
    let blocks = tokens.chunks_exact(BLOCK_TOKENS);
    let prefixes = blocks.map(|block| {
        block.hash(&mut hasher);
        hasher.finish()
    });
    Hashes { session, prefixes: prefixes.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(tokens: &[u32]) -> Wanted<'_> {
        Wanted { tokens, salt: 0, session: None }
    }

    /// A prompt that begins like others of its group.
    fn prompt(group: u32, own: u32) -> Vec<u32> {
        (0..96).map(|at| if at < 64 { group } else { own }).collect()
    }

    #[test]
    fn jobs_with_one_beginning_share_a_replica_and_others_go_where_there_is_least_to_do() {
        let mut placement = Placement::default();
        let mut open = [Some(0); 3];
        for (group, expected) in [(1, 0), (2, 1), (3, 2), (1, 0), (2, 1), (3, 2), (2, 1)] {
            let own = 100 + open.iter().flatten().sum::<usize>() as u32;
            let replica = placement.place(wanted(&prompt(group, own)), &open);
            assert_eq!(replica, expected, "group {group} at {open:?}");
            open[replica] = open[replica].map(|open| open + 1);
        }
    }

    #[test]
    fn a_replica_with_much_more_to_do_gets_no_jobs_for_their_prefix() {
        let mut placement = Placement::default();
        assert_eq!(placement.place(wanted(&prompt(1, 1)), &[Some(0), Some(0)]), 0);
        assert_eq!(placement.place(wanted(&prompt(1, 2)), &[Some(8), Some(0)]), 0);
        assert_eq!(placement.place(wanted(&prompt(1, 3)), &[Some(9), Some(0)]), 1);
        // Now both have it.
        assert_eq!(placement.place(wanted(&prompt(1, 4)), &[Some(3), Some(2)]), 1);
    }

    #[test]
    fn a_replica_that_does_not_run_gets_no_jobs_and_loses_its_prefixes() {
        let mut placement = Placement::default();
        assert_eq!(placement.place(wanted(&prompt(1, 1)), &[Some(0), Some(5)]), 0);
        assert_eq!(placement.place(wanted(&prompt(1, 1)), &[None, Some(5)]), 1);
        placement.forget(0);
        assert_eq!(placement.place(wanted(&prompt(1, 1)), &[Some(0), Some(5)]), 1);
        assert_eq!(placement.place(wanted(&prompt(1, 1)), &[None, None]), 0);
    }

    #[test]
    fn a_session_stays_where_it_was_and_salts_keep_tenants_apart() {
        let mut placement = Placement::default();
        let short = |salt, session| Wanted { tokens: &[1, 2], salt, session };
        assert_eq!(placement.place(short(1, Some(7)), &[Some(1), Some(0)]), 1);
        assert_eq!(placement.place(short(1, Some(7)), &[Some(0), Some(4)]), 1);
        assert_eq!(placement.place(short(2, Some(7)), &[Some(0), Some(4)]), 0);
        assert_eq!(placement.place(short(1, Some(8)), &[Some(0), Some(4)]), 0);
        // A session that is new shares prefixes as others do.
        let tokens = prompt(5, 5);
        let long = |session| Wanted { tokens: &tokens, salt: 1, session };
        assert_eq!(placement.place(long(Some(9)), &[Some(1), Some(0)]), 1);
        assert_eq!(placement.place(long(Some(10)), &[Some(0), Some(0)]), 1);
    }

    #[test]
    fn prompts_one_after_the_other_are_spread() {
        let mut placement = Placement::default();
        let replicas = (0..4).map(|group| placement.place(wanted(&prompt(group, group)), &[Some(0); 2]));
        assert_eq!(replicas.collect::<Vec<_>>(), [0, 1, 0, 1]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut placement = Placement::default();
        for at in 0..200 {
            let tokens: Vec<u32> = (0..BLOCK_TOKENS as u32 * 1000).map(|token| token + at).collect();
            placement.place(wanted(&tokens), &[Some(0), Some(0)]);
        }
        let remembered = placement.young.len() + placement.old.len();
        assert!(remembered <= 2 * GENERATION_BLOCKS + 2000, "{remembered}");
    }

    /// Whatever comes, the chosen replica runs where any does, and has at most twice the jobs of the least busy one and the
    /// slack more.
    #[test]
    fn every_choice_runs_and_is_not_much_busier_than_the_least() {
        let mut random = omnibus_core::random::Rng::new(5);
        let mut placement = Placement::default();
        for _ in 0..2000 {
            let mut below = |limit: usize| random.below(limit as u64) as usize;
            let replicas = 1 + below(5);
            let open: Vec<Option<usize>> = (0..replicas).map(|_| (below(4) > 0).then(|| below(40))).collect();
            let tokens = prompt(below(4) as u32, below(3) as u32);
            let replica = placement.place(wanted(&tokens), &open);
            match open.iter().flatten().min() {
                None => assert_eq!(replica, 0),
                Some(least) => assert!(
                    open[replica].is_some_and(|open| open <= 2 * least + SLACK_JOBS),
                    "{replica} of {open:?}"
                ),
            }
            if below(10) == 0 {
                placement.forget(below(replicas));
            }
        }
    }
}
