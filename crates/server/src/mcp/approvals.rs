//! Calls that wait for an approval.
//!
//! Invariant: an approval is of one call, with the arguments and the definition that the client saw, by the tenant that saw
//! them, once, and in time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use omnibus_mcp::Call;
use uuid::Uuid;

/// Most calls that wait; the oldest are forgotten.
const PENDING_MAX: usize = 10_000;

/// A call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCall {
    /// Whose request made it.
    pub tenant: String,
    /// The server's name for the client.
    pub label: String,
    /// The tool's own name.
    pub tool: String,
    /// JSON text.
    pub arguments: String,
    /// The hash of the tool's definition.
    pub hash: String,
}

/// A call that was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedCall {
    /// The call, by the name that the model knows.
    pub call: Call,
    /// The approval's id.
    pub approval_id: String,
}

/// The calls that wait.
#[derive(Debug)]
pub struct PendingCalls {
    timeout: Duration,
    pending: Mutex<HashMap<String, (Instant, PendingCall)>>,
}

impl PendingCalls {
    /// They wait for so long.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, pending: Mutex::default() }
    }

    /// A call waits. Returns the approval's id.
    pub fn add(&self, call: PendingCall) -> String {
        self.add_at(call, Instant::now())
    }

    /// Takes a tenant's call that waits, whether or not it is approved. `None` if there is none, or no more.
    pub fn take(&self, id: &str, tenant: &str) -> Option<PendingCall> {
        self.take_at(id, tenant, Instant::now())
    }

    /// A tenant's call that waits.
    pub fn get(&self, id: &str, tenant: &str) -> Option<PendingCall> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, call) = pending.get(id)?;
        (call.tenant == tenant && since.elapsed() < self.timeout).then(|| call.clone())
    }

    fn add_at(&self, call: PendingCall, now: Instant) -> String {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|_, (since, _)| now.saturating_duration_since(*since) < self.timeout);
        if pending.len() >= PENDING_MAX
            && let Some(oldest) =
                pending.iter().min_by_key(|(_, (since, _))| *since).map(|(id, _)| id.clone())
        {
            pending.remove(&oldest);
        }
        let id = format!("mcpr_{}", Uuid::new_v4().simple());
        pending.insert(id.clone(), (now, call));
        id
    }

    fn take_at(&self, id: &str, tenant: &str, now: Instant) -> Option<PendingCall> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.get(id)?.1.tenant != tenant {
            return None;
        }
        let (since, call) = pending.remove(id)?;
        (now.saturating_duration_since(since) < self.timeout).then_some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tenant: &str) -> PendingCall {
        let text = |text: &str| text.to_owned();
        PendingCall {
            tenant: text(tenant),
            label: text("s"),
            tool: text("t"),
            arguments: text("{}"),
            hash: text("h"),
        }
    }

    #[test]
    fn an_approval_is_its_tenants_and_used_once() {
        let approvals = PendingCalls::new(Duration::from_secs(10));
        let id = approvals.add(call("a"));
        assert_eq!((approvals.get(&id, "b"), approvals.take(&id, "b")), (None, None));
        assert_eq!(approvals.get(&id, "a"), Some(call("a")));
        assert_eq!(approvals.take(&id, "a"), Some(call("a")));
        assert_eq!(approvals.take(&id, "a"), None);
    }

    #[test]
    fn an_approval_that_is_late_is_none() {
        let approvals = PendingCalls::new(Duration::from_secs(10));
        let start = Instant::now();
        let id = approvals.add_at(call("a"), start);
        assert_eq!(approvals.take_at(&id, "a", start + Duration::from_secs(10)), None);
        approvals.add_at(call("a"), start);
        approvals.add_at(call("a"), start + Duration::from_secs(10));
        assert_eq!(approvals.pending.lock().unwrap().len(), 1);
    }
}
