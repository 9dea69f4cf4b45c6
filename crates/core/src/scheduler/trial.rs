//! Bisect: finds the faulty sequence by running those of a failed step in small groups, one step each, while all others
//! pause.
//!
//! Invariant: one step at a time is in flight, so the sequences of a failed step are known. The first of a group can
//! take all memory, so each step clears a suspect, makes the groups smaller, or ends a sequence. Suspects wait until
//! their group is run.

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
