//! Which engine requests belong to which answer, and to whom.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What runs for clients of this server.
#[derive(Debug, Clone, Default)]
pub struct Running(Arc<Mutex<BTreeMap<String, Owner>>>);

/// Where a request of the engine came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The answer's id, as in its chunks.
    pub answer_id: String,
    /// The HTTP request's id.
    pub request_id: String,
    /// Which of the answers.
    pub index: usize,
    /// Whose.
    pub tenant: String,
}

/// A place among what runs, given up when dropped.
#[derive(Debug)]
pub struct Seat {
    running: Running,
    engine_id: String,
}

impl Running {
    /// Takes a place.
    pub fn enter(&self, engine_id: String, owner: Owner) -> Seat {
        self.with(|owners| owners.insert(engine_id.clone(), owner));
        Seat { running: self.clone(), engine_id }
    }

    /// Who asked for this.
    pub fn owner(&self, engine_id: &str) -> Option<Owner> {
        self.with(|owners| owners.get(engine_id).cloned())
    }

    /// The engine's ids of what a tenant knows as `id`: an answer, one of its choices, or an HTTP request.
    pub fn find(&self, id: &str, tenant: &str) -> Vec<String> {
        let known = |engine_id: &str, owner: &Owner| {
            owner.tenant == tenant && (engine_id == id || owner.answer_id == id || owner.request_id == id)
        };
        self.with(|owners| {
            let found = owners.iter().filter(|(engine_id, owner)| known(engine_id, owner));
            found.map(|(engine_id, _)| engine_id.clone()).collect()
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Owner>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.running.with(|owners| owners.remove(&self.engine_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_finds_its_own_by_any_of_three_names_until_they_end() {
        let running = Running::default();
        let owner = |tenant: &str| Owner {
            answer_id: "cmpl-1".into(),
            request_id: "req-1".into(),
            index: 0,
            tenant: tenant.into(),
        };
        let mine = running.enter("cmpl-1-0".into(), owner("me"));
        let _theirs = running.enter("cmpl-2".into(), owner("them"));
        for name in ["cmpl-1", "cmpl-1-0", "req-1"] {
            assert_eq!(running.find(name, "me"), ["cmpl-1-0"]);
        }
        assert!(running.find("cmpl-2", "me").is_empty());
        drop(mine);
        assert!(running.find("req-1", "me").is_empty());
    }
}
