//! Sessions by the names that clients gave them; the engine knows numbers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::digest::digest;
use crate::info::SessionInfo;
use crate::stats::SessionStats;

/// Beyond this many, names of sessions that no longer exist are dropped.
const NAMES_MAX: usize = 8192;

/// Each session number's tenant and name.
#[derive(Default)]
pub(super) struct SessionNames(Mutex<BTreeMap<u128, (String, String)>>);

impl SessionNames {
    /// The number of a tenant's session.
    pub(super) fn number(tenant: &str, name: &str) -> u128 {
        digest(&[b"session", tenant.as_bytes(), name.as_bytes()])
    }

    /// Adds the session of a new request. `existing` queries the engine's sessions; without a reply all names are kept.
    pub(super) fn insert(
        &self,
        tenant: &str,
        name: &str,
        existing: impl FnOnce() -> Option<Vec<SessionStats>>,
    ) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_MAX
            && let Some(existing) = existing()
        {
            names.retain(|number, _| existing.iter().any(|session| session.session == *number));
        }
        names.insert(Self::number(tenant, name), (tenant.to_owned(), name.to_owned()));
    }

    /// A tenant's sessions, of those in the engine.
    pub(super) fn of(&self, tenant: &str, sessions: &[SessionStats]) -> Vec<SessionInfo> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = sessions.iter().filter_map(|session| {
            let (owner, name) = names.get(&session.session)?;
            (owner == tenant).then(|| SessionInfo {
                id: name.clone(),
                tokens: session.tokens,
                blocks: session.blocks,
                idle_s: session.idle_s,
            })
        });
        own.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_collide_under_fnv_are_different_sessions() {
        let [one, other] = crate::digest::tests::session_collision()
            .map(|(tenant, name)| SessionNames::number(tenant, name));
        assert_ne!(one, other);
    }

    #[test]
    fn a_tenant_sees_its_own_sessions_by_the_names_it_gave() {
        let names = SessionNames::default();
        names.insert("mine", "talk", || None);
        names.insert("theirs", "talk", || None);
        let stats = |tenant: &str| {
            let session = SessionNames::number(tenant, "talk");
            SessionStats { session, tokens: 3, blocks: 1, idle_s: 0.5 }
        };
        let sessions = [stats("mine"), stats("theirs")];
        let mine = names.of("mine", &sessions);
        assert_eq!(mine.len(), 1);
        assert_eq!((mine[0].id.as_str(), mine[0].tokens), ("talk", 3));
        assert!(names.of("other", &sessions).is_empty());
    }
}
