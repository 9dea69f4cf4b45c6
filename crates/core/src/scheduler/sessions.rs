//! Sessions: conversations with blocks that stay pinned between turns.
//!
//! Invariant: a session has no references to blocks. Its blocks are evicted after all other unused blocks, the least
//! recently used session first; so no session takes memory from a sequence. No operation looks at all sequences or at
//! all sessions, but for the list of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::kv_cache::{KvCacheManager, Pin};
use crate::prefix::BlockHash;
use crate::request::Tick;
use crate::sequence::Sequence;
use crate::stats::SessionInfo;

/// Most sessions at once; beyond, the least recently used one ends.
const SESSIONS_MAX: usize = 4096;
/// Most branches of a session; beyond, the oldest is dropped.
const BRANCHES_MAX: usize = 4;

/// All sessions.
#[derive(Debug, Clone)]
pub(super) struct Sessions {
    by_id: BTreeMap<u128, Session>,
    /// All sessions, by last use.
    by_use: BTreeSet<(Tick, u128)>,
    /// Sessions without a live sequence, by last use.
    idle: BTreeSet<(Tick, u128)>,
    /// Live sequences of each session, even if it was dropped meanwhile.
    live: BTreeMap<u128, usize>,
    /// A session without a live sequence ends when it was not used for so long.
    ttl: Tick,
    /// The latest time that was passed in.
    now: Tick,
}

#[derive(Debug, Clone, Default)]
struct Session {
    last_used: Tick,
    /// Oldest first. None is a prefix of another.
    branches: Vec<Branch>,
}

/// One branch of a conversation.
#[derive(Debug, Clone)]
struct Branch {
    hashes: Vec<BlockHash>,
    pins: Vec<Pin>,
}

impl Session {
    fn end(self, kv_cache: &mut KvCacheManager) {
        self.branches.iter().for_each(|branch| kv_cache.unpin(&branch.pins));
    }

    fn info(&self, id: u128, kv_cache: &KvCacheManager) -> SessionInfo {
        let hit = |branch: &Branch| kv_cache.longest_cache_hit(&branch.hashes, branch.hashes.len());
        let pins: BTreeSet<_> = self.branches.iter().flat_map(|branch| &branch.pins).collect();
        SessionInfo {
            session: id,
            tokens: self.branches.iter().map(hit).max().unwrap_or(0) * kv_cache.block_size(),
            blocks: pins.into_iter().filter(|pin| kv_cache.is_pinned(pin)).count(),
            last_used: self.last_used,
        }
    }
}

impl Sessions {
    /// No session.
    pub(super) fn new(ttl: Tick) -> Self {
        let (by_id, by_use, idle, live) = Default::default();
        Self { by_id, by_use, idle, live, ttl, now: 0 }
    }

    /// Drops all sessions, when their blocks are gone.
    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.by_use.clear();
        self.idle.clear();
    }

    /// Number of sessions.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All pins.
    pub(super) fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.by_id.values().flat_map(|session| &session.branches).flat_map(|branch| &branch.pins)
    }

    /// Sessions that have not ended.
    pub(super) fn list(&self, now: Tick, kv_cache: &KvCacheManager) -> Vec<SessionInfo> {
        let alive = self.by_id.iter().filter(|(id, session)| {
            self.live.contains_key(*id) || session.last_used.saturating_add(self.ttl) > now
        });
        alive.map(|(id, session)| session.info(*id, kv_cache)).collect()
    }

    /// Ends a session. A live sequence of it starts it anew when it ends. False for an unknown id.
    pub(super) fn drop_session(&mut self, id: u128, kv_cache: &mut KvCacheManager) -> bool {
        let session = self.remove(id);
        let was_there = session.is_some();
        session.into_iter().for_each(|session| session.end(kv_cache));
        was_there
    }

    /// Time has passed: ends the sessions that were not used for the TTL.
    pub(super) fn advance(&mut self, now: Tick, kv_cache: &mut KvCacheManager) {
        self.now = self.now.max(now);
        while let Some((last_used, id)) = self.idle.first().copied()
            && last_used.saturating_add(self.ttl) <= self.now
        {
            self.drop_session(id, kv_cache);
        }
    }

    /// A sequence has arrived.
    pub(super) fn join(&mut self, session: Option<u128>, kv_cache: &mut KvCacheManager) {
        let Some(id) = session else { return };
        *self.live.entry(id).or_default() += 1;
        self.touch(session, kv_cache);
    }

    /// A sequence has arrived, or is admitted.
    pub(super) fn touch(&mut self, session: Option<u128>, kv_cache: &mut KvCacheManager) {
        if let (Some(id), true) = (session, kv_cache.shares()) {
            self.touch_session(id, kv_cache);
        }
    }

    /// A sequence has ended. Pins its cached blocks.
    pub(super) fn keep(&mut self, sequence: &Sequence, kv_cache: &mut KvCacheManager) {
        let hashes = &sequence.cache.hashes.all()[..sequence.cache.cached_blocks];
        if let Some(id) = sequence.session.filter(|_| !hashes.is_empty()) {
            self.touch_session(id, kv_cache).keep(hashes, kv_cache);
        }
        self.leave(sequence.session);
    }

    /// A sequence is gone.
    pub(super) fn leave(&mut self, session: Option<u128>) {
        let Some(id) = session else { return };
        let Some(live) = self.live.get_mut(&id) else { return };
        *live -= 1;
        if *live == 0 {
            self.live.remove(&id);
            self.idle.extend(self.by_id.get(&id).map(|session| (session.last_used, id)));
        }
    }

    fn touch_session(&mut self, id: u128, kv_cache: &mut KvCacheManager) -> &mut Session {
        let mut session = self.remove(id);
        if session.is_none()
            && self.by_id.len() >= SESSIONS_MAX
            && let Some((_, oldest)) = self.by_use.first().copied()
        {
            self.drop_session(oldest, kv_cache);
        }
        let mut session = session.take().unwrap_or_default();
        session.last_used = session.last_used.max(self.now);
        self.by_use.insert((session.last_used, id));
        if !self.live.contains_key(&id) {
            self.idle.insert((session.last_used, id));
        }
        self.by_id.entry(id).or_insert(session)
    }

    fn remove(&mut self, id: u128) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        self.by_use.remove(&(session.last_used, id));
        self.idle.remove(&(session.last_used, id));
        Some(session)
    }

    /// Panics if the orders disagree with the sessions, or the counts with these live sequences.
    pub(super) fn audit<'a>(&self, sequences: impl Iterator<Item = &'a Sequence>) {
        let mut live: BTreeMap<u128, usize> = BTreeMap::new();
        sequences.filter_map(|of| of.session).for_each(|id| *live.entry(id).or_default() += 1);
        assert_eq!(live, self.live, "a session has other live sequences");
        let all = || self.by_id.iter().map(|(id, session)| (session.last_used, *id));
        assert!(all().collect::<BTreeSet<_>>() == self.by_use, "the order of use is wrong");
        let idle = all().filter(|(_, id)| !live.contains_key(id));
        assert!(idle.collect::<BTreeSet<_>>() == self.idle, "a session may not end, or ends too soon");
    }
}

impl Session {
    /// Pins the blocks of these hashes as a branch, unless another branch has them.
    fn keep(&mut self, hashes: &[BlockHash], kv_cache: &mut KvCacheManager) {
        if self.branches.iter().any(|branch| branch.hashes.starts_with(hashes)) {
            return;
        }
        let pins = kv_cache.pin(hashes);
        let (grown, mut others): (Vec<_>, Vec<_>) =
            self.branches.drain(..).partition(|branch| hashes.starts_with(&branch.hashes));
        others.push(Branch { hashes: hashes.to_vec(), pins });
        let kept = others.split_off(others.len().saturating_sub(BRANCHES_MAX));
        self.branches = kept;
        grown.iter().chain(&others).for_each(|branch| kv_cache.unpin(&branch.pins));
    }
}
