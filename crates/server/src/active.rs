//! Active engine requests, with the response, HTTP request and tenant of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Requests of this server's clients that are queued or running.
#[derive(Debug, Clone, Default)]
pub struct ActiveRequests(Arc<Mutex<BTreeMap<String, Owner>>>);

/// The response, HTTP request and tenant of an engine request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The response's id, as in its chunks.
    pub response_id: String,
    /// The HTTP request's id.
    pub request_id: String,
    /// The choice's index in the response.
    pub index: usize,
    /// The tenant of the request.
    pub tenant: String,
}

/// Removes the entry of an active request when dropped.
#[derive(Debug)]
pub struct ActiveGuard {
    running: ActiveRequests,
    engine_id: String,
}

impl ActiveRequests {
    /// Registers an engine request.
    pub fn register(&self, engine_id: String, owner: Owner) -> ActiveGuard {
        self.with(|owners| owners.insert(engine_id.clone(), owner));
        ActiveGuard { running: self.clone(), engine_id }
    }

    /// The owner of an engine request.
    pub fn owner(&self, engine_id: &str) -> Option<Owner> {
        self.with(|owners| owners.get(engine_id).cloned())
    }

    /// The engine ids of a tenant's requests that `id` names: a response, one of its choices, or an HTTP request.
    pub fn find(&self, id: &str, tenant: &str) -> Vec<String> {
        let known = |engine_id: &str, owner: &Owner| {
            owner.tenant == tenant && (engine_id == id || owner.response_id == id || owner.request_id == id)
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

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.running.with(|owners| owners.remove(&self.engine_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_finds_its_own_active_requests_by_three_ids() {
        let running = ActiveRequests::default();
        let owner = |tenant: &str| Owner {
            response_id: "cmpl-1".into(),
            request_id: "req-1".into(),
            index: 0,
            tenant: tenant.into(),
        };
        let mine = running.register("cmpl-1-0".into(), owner("me"));
        let _theirs = running.register("cmpl-2".into(), owner("them"));
        for name in ["cmpl-1", "cmpl-1-0", "req-1"] {
            assert_eq!(running.find(name, "me"), ["cmpl-1-0"]);
        }
        assert!(running.find("cmpl-2", "me").is_empty());
        drop(mine);
        assert!(running.find("req-1", "me").is_empty());
    }
}
