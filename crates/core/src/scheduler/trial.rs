//! Finds out whose steps fail: runs those of a failed step in small groups, one step each, while all others pause.
//!
//! Invariant: one step at a time is in flight, so it is known who was in the step that failed. The first of a group
//! can have everybody's memory, so each trial clears somebody, makes the groups smaller, or ends a sequence.
//! Suspects wait until their trial.

use super::draft::{Admission, Draft, Move};

/// Plans the next group of suspects.
pub(super) fn fill(draft: &mut Draft<'_>) {
    if draft.books.in_flight() > 0 {
        return;
    }
    let mut victims = draft.runners();
    for id in draft.queue().filter(|id| draft.books.recovery.is_suspect(*id)) {
        if draft.is_spent() || draft.admit(id, Admission::Piece, &mut victims) == Move::Stuck {
            return;
        }
        victims.clear();
    }
}
