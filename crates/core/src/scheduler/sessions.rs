//! Sessions: conversations with blocks that stay pinned between turns.
//!
//! Invariant: a session has no references to blocks. Its blocks are evicted after all other unused blocks, the least
//! recently used session first; so no session takes memory from a sequence.

use std::collections::{BTreeMap, BTreeSet};

use super::Scheduler;
use crate::kv_cache::{KvCacheManager, Pin};
use crate::prefix::BlockHash;
use crate::sequence::Sequence;
use crate::{SessionInfo, Tick};

/// Most sessions at once; beyond, the least recently used one ends.
const SESSIONS_MAX: usize = 4096;
/// Most branches of a session; beyond, the oldest is dropped.
const BRANCHES_MAX: usize = 4;

/// All sessions.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions {
    by_id: BTreeMap<u128, Session>,
    /// No session expires before this time.
    quiet_until: Tick,
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
    keys: Vec<BlockHash>,
    pins: Vec<Pin>,
}

impl Session {
    fn end(self, kv_cache: &mut KvCacheManager) {
        self.branches.iter().for_each(|branch| kv_cache.unpin(&branch.pins));
    }
}

impl Sessions {
    /// Drops all sessions, when their blocks are gone.
    pub(super) fn clear(&mut self) {
        self.by_id.clear();
    }

    /// Number of sessions.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All pins.
    pub(super) fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.by_id.values().flat_map(|session| &session.branches).flat_map(|branch| &branch.pins)
    }

    fn touch(&mut self, id: u128, now: Tick, kv_cache: &mut KvCacheManager) -> &mut Session {
        if self.by_id.len() >= SESSIONS_MAX && !self.by_id.contains_key(&id) {
            let oldest = self.by_id.iter().min_by_key(|(_, session)| session.last_used);
            if let Some(oldest) = oldest.map(|(id, _)| *id).and_then(|id| self.by_id.remove(&id)) {
                oldest.end(kv_cache);
            }
        }
        let session = self.by_id.entry(id).or_default();
        session.last_used = session.last_used.max(now);
        session
    }
}

impl Scheduler {
    /// The sessions that have not ended.
    pub fn sessions(&self, now: Tick) -> Vec<SessionInfo> {
        let ttl = self.settings.session_ttl;
        let busy = self.busy_sessions();
        let alive = self
            .sessions
            .by_id
            .iter()
            .filter(|(id, session)| busy.contains(*id) || session.last_used.saturating_add(ttl) > now);
        alive.map(|(id, session)| self.session_info(*id, session)).collect()
    }

    /// Ends a session. A running request of it continues, and starts it anew when it ends. False for an unknown id.
    pub fn drop_session(&mut self, id: u128) -> bool {
        let session = self.sessions.by_id.remove(&id);
        let was_there = session.is_some();
        session.into_iter().for_each(|session| session.end(&mut self.kv_cache));
        was_there
    }

    fn session_info(&self, id: u128, session: &Session) -> SessionInfo {
        let tokens = |branch: &Branch| self.kv_cache.longest_cache_hit(&branch.keys, branch.keys.len());
        let blocks = session.branches.iter().map(tokens).max().unwrap_or(0);
        let pins: BTreeSet<_> = session.branches.iter().flat_map(|branch| &branch.pins).collect();
        SessionInfo {
            session: id,
            tokens: blocks * self.settings.block_size,
            blocks: pins.into_iter().filter(|pin| self.kv_cache.is_pinned(pin)).count(),
            last_used: session.last_used,
        }
    }

    /// A request of a session has arrived, or its prompt is computed.
    pub(super) fn use_session(&mut self, id: Option<u128>) {
        if let (Some(id), true) = (id, self.kv_cache.shares()) {
            self.sessions.touch(id, self.latest, &mut self.kv_cache);
        }
    }

    /// Pins the blocks of a finished sequence, if it belongs to a session.
    pub(super) fn remember(&mut self, sequence: &Sequence) {
        let keys = &sequence.cache.hashes.all()[..sequence.cache.cached_blocks];
        let Some(id) = sequence.session.filter(|_| !keys.is_empty()) else { return };
        let session = self.sessions.touch(id, self.latest, &mut self.kv_cache);
        if session.branches.iter().any(|branch| branch.keys.starts_with(keys)) {
            return;
        }
        let pins = self.kv_cache.pin(keys);
        let (grown, mut others): (Vec<_>, Vec<_>) =
            session.branches.drain(..).partition(|branch| keys.starts_with(&branch.keys));
        others.push(Branch { keys: keys.to_vec(), pins });
        let kept = others.split_off(others.len().saturating_sub(BRANCHES_MAX));
        session.branches = kept;
        grown.iter().chain(&others).for_each(|branch| self.kv_cache.unpin(&branch.pins));
    }

    /// Ends the sessions that were not used for the TTL.
    pub(super) fn expire_sessions(&mut self) {
        if self.sessions.by_id.is_empty() || self.latest < self.sessions.quiet_until {
            return;
        }
        let (ttl, now) = (self.settings.session_ttl, self.latest);
        let busy = self.busy_sessions();
        let ends =
            |id: &u128, session: &Session| !busy.contains(id) && session.last_used.saturating_add(ttl) <= now;
        let (over, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.sessions.by_id).into_iter().partition(|(id, session)| ends(id, session));
        self.sessions.by_id = kept;
        over.into_values().for_each(|session| session.end(&mut self.kv_cache));
        let next = self.sessions.by_id.values().map(|session| session.last_used.saturating_add(ttl)).min();
        self.sessions.quiet_until = next.unwrap_or(0);
    }

    /// Sessions with a live sequence.
    fn busy_sessions(&self) -> BTreeSet<u128> {
        self.sequences.values().filter_map(|sequence| sequence.session).collect()
    }
}
