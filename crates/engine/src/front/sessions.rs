//! The names of sessions: clients choose them, and everybody else knows numbers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::info::{SessionInfo, Stats};

/// Names beyond so many are thinned out to those of sessions that are there.
const NAMES_MAX: usize = 8192;

/// Whose session a number is, and what its owner calls it.
#[derive(Default)]
pub(super) struct SessionNames(Mutex<BTreeMap<u64, (String, String)>>);

impl SessionNames {
    /// The number of a session, by which it is found again.
    pub(super) fn number(tenant: &str, name: &str) -> u64 {
        super::handle::hash(&[b"session", tenant.as_bytes(), name.as_bytes()])
    }

    /// Remembers a session of which a request has come.
    pub(super) fn meet(&self, tenant: &str, name: &str, known: impl FnOnce() -> Stats) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_MAX {
            let stats = known();
            names.retain(|number, _| stats.sessions.iter().any(|seen| seen.session == *number));
        }
        names.insert(Self::number(tenant, name), (tenant.to_owned(), name.to_owned()));
    }

    /// A tenant's own, of those that were seen.
    pub(super) fn of(&self, tenant: &str, stats: &Stats) -> Vec<SessionInfo> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = stats.sessions.iter().filter_map(|seen| {
            let (owner, name) = names.get(&seen.session)?;
            (owner == tenant).then(|| SessionInfo {
                id: name.clone(),
                tokens: seen.tokens,
                blocks: seen.blocks,
                idle_s: seen.idle_s,
            })
        });
        seen.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionSeen;

    #[test]
    fn a_tenant_sees_its_own_sessions_by_the_names_it_gave() {
        let names = SessionNames::default();
        names.meet("mine", "talk", Stats::default);
        names.meet("theirs", "talk", Stats::default);
        let seen = |tenant: &str| {
            let session = SessionNames::number(tenant, "talk");
            SessionSeen { session, tokens: 3, blocks: 1, idle_s: 0.5 }
        };
        let stats = Stats { sessions: vec![seen("mine"), seen("theirs")], ..Stats::default() };
        let mine = names.of("mine", &stats);
        assert_eq!(mine.len(), 1);
        assert_eq!((mine[0].id.as_str(), mine[0].tokens), ("talk", 3));
        assert!(names.of("nobody", &stats).is_empty());
    }
}
