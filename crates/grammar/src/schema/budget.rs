//! How much work one schema may cause while it is read. Beyond it, what is not seen to be enforceable is not enforced.

use std::cell::Cell;

/// What is left of the work of one schema.
pub(super) struct Budget {
    comparisons: Cell<usize>,
    negations: Cell<usize>,
    expressions: Cell<usize>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { comparisons: Cell::new(50_000), negations: Cell::new(20_000), expressions: Cell::new(400) }
    }
}

impl Budget {
    /// Takes the comparison of two schemas.
    pub fn comparison(&self) -> bool {
        take(&self.comparisons)
    }

    /// Takes the negation of one schema.
    pub fn negation(&self) -> bool {
        take(&self.negations)
    }

    /// Takes the search for a text that an expression matches.
    pub fn expression(&self) -> bool {
        take(&self.expressions)
    }
}

fn take(left: &Cell<usize>) -> bool {
    let now = left.get();
    left.set(now.saturating_sub(1));
    now > 0
}
