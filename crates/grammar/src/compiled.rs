//! A compiled grammar, and copies of its first state.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::Matcher;

use crate::vocabulary::Vocabulary;

/// A compiled grammar, shared by the sequences that have it.
#[derive(Clone)]
pub struct Compiled(Arc<Inner>);

struct Inner {
    key: u128,
    /// Independent copies. Those that share a copy share its lexer, and compute masks one after the other.
    copies: Vec<Mutex<Matcher>>,
    next: AtomicUsize,
    vocabulary: Vocabulary,
}

impl Compiled {
    /// From the state before any token. `key`: equal for equal grammars.
    pub(crate) fn new(key: u128, fresh: &Matcher, copies: usize, vocabulary: Vocabulary) -> Self {
        let copies = (0..copies.max(1)).map(|_| Mutex::new(fresh.deep_clone())).collect();
        Self(Arc::new(Inner { key, copies, next: AtomicUsize::new(0), vocabulary }))
    }

    pub(crate) fn key(&self) -> u128 {
        self.0.key
    }

    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        &self.0.vocabulary
    }

    /// The grammar's state before any token.
    pub(crate) fn fresh(&self) -> Matcher {
        let Inner { copies, next, .. } = &*self.0;
        let copy = &copies[next.fetch_add(1, Ordering::Relaxed) % copies.len()];
        copy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Compiled").field(&self.0.key).finish()
    }
}
