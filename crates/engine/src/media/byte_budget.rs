//! Bytes that requests may have together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory for one kind of bytes of open requests: as many as are left.
#[derive(Debug, Clone)]
pub struct ByteBudget(Arc<AtomicU64>);

impl ByteBudget {
    /// This many bytes.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Takes bytes out of it; `None` if there are not as many left.
    pub fn reserve(&self, bytes: u64) -> Option<Reserved> {
        let mut reserved = self.nothing();
        reserved.grow(bytes).then_some(reserved)
    }

    /// No bytes yet.
    pub fn nothing(&self) -> Reserved {
        Reserved { budget: self.clone(), bytes: 0 }
    }
}

/// Bytes of a budget, given back when dropped.
#[derive(Debug)]
pub struct Reserved {
    budget: ByteBudget,
    bytes: u64,
}

impl Reserved {
    /// Takes more bytes out of the budget; `false`, and none are taken, if there are not as many left.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let take = |left: u64| left.checked_sub(bytes);
        let taken = self.budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}
