//! Bisect: finds the faulty sequence by running those of a failed step in small groups, one step each, while all others
//! pause.
//!
//! Invariant: one step at a time is in flight, so the sequences of a failed step are known. The first of a group can
//! take all blocks, so each step clears a suspect, makes the groups smaller, or ends a sequence. Suspects wait until
//! their group is run.

use super::plan_builder::{PlanBuilder, Reserve, Scheduled};

/// Plans the next group of suspects.
pub(super) fn fill(builder: &mut PlanBuilder<'_>) {
    if builder.scheduler.in_flight() > 0 {
        return;
    }
    let mut victims = builder.runners();
    let scheduler = builder.scheduler;
    for suspect in builder.queue().filter(|of| scheduler.recovery.is_suspect(of.id())) {
        if builder.is_spent() || builder.admit(suspect, Reserve::Chunk, &mut victims) == Scheduled::NoBlocks {
            return;
        }
        victims.clear();
    }
}
