//! Decides which sequences advance, and keeps the books of who holds which blocks.

use crate::{
    Begun, Event, Limits, Outcome, Plan, Rejection, Request, SequenceId, Settings, Stats, Table, Tick, Token,
};

/// Decides which sequences advance, and keeps the books of who holds which blocks.
#[derive(Debug, Clone)]
pub struct Scheduler {
    settings: Settings,
}

impl Scheduler {
    /// A scheduler with nothing to do. Panics on settings that could never run anything.
    pub fn new(settings: Settings) -> Self {
        settings.check();
        Self { settings }
    }

    /// The longest sequence that can be taken, in tokens, prompt and answer together.
    pub fn longest(&self) -> usize {
        self.settings.max_context
    }

    /// Queues a request. Refuses what could not run even alone; that is what makes progress certain.
    pub fn submit(&mut self, _now: Tick, _request: Request) -> Result<SequenceId, Rejection> {
        Err(Rejection::Empty)
    }

    /// Ends a sequence, at any time. Its event, or none if it had ended before or was never there.
    pub fn cancel(&mut self, _id: SequenceId) -> Option<Event> {
        None
    }

    /// Like [`Self::cancel`], for a sequence that the engine cannot go on with.
    pub fn fail(&mut self, _id: SequenceId) -> Option<Event> {
        None
    }

    /// Decides the next step without changing anything. Looks past the steps in flight: assumes that their
    /// samples arrive and end no sequence, unless its length does. The same state and time give the same plan.
    pub fn plan(&self, _now: Tick) -> Plan {
        Plan::default()
    }

    /// Books a plan: blocks are claimed, sequences admitted, preempted and expired. At most two plans with work
    /// are in flight. Panics if anything has happened since the plan was made.
    pub fn begin(&mut self, _plan: &Plan) -> Begun {
        Begun::default()
    }

    /// Enters what came of the oldest plan in flight, and says what to tell the clients.
    ///
    /// Panics if it is not the oldest, or if the rows are not as many as it asked for: both are bugs in the
    /// engine, and going on would hand one client's memory to another.
    pub fn commit(&mut self, _outcome: Outcome) -> Vec<Event> {
        Vec::new()
    }

    /// Drops every plan in flight after a step failed as a whole. All memory is suspect, so all sequences go back
    /// to waiting and start over from their tokens, the prefix index forgets everything, and the limits of a step
    /// are halved. Sequences of the failed steps then run in ever smaller groups, one step each, before anything
    /// else does; one that fails alone in the smallest step ends. Nothing is told twice.
    pub fn fail_steps(&mut self) -> Vec<Event> {
        Vec::new()
    }

    /// The most the next step may do; less than the settings say after a failed step, for a while.
    pub fn limits(&self) -> Limits {
        self.settings.limits()
    }

    /// The blocks of a sequence in a group, as of the last `begin`. Panics if the sequence is not there.
    pub fn table(&self, _id: SequenceId, _group: usize) -> Table<'_> {
        Table { first: 0, blocks: &[] }
    }

    /// Prompt, then everything sampled so far. Panics if the sequence is not there. A sequence is there until its
    /// last event, and in any case until the last plan that holds it is committed.
    pub fn tokens(&self, _id: SequenceId) -> &[Token] {
        &[]
    }

    /// Plans begun and not committed.
    pub fn in_flight(&self) -> usize {
        0
    }

    /// True when no sequence is left.
    pub fn is_idle(&self) -> bool {
        true
    }

    /// Numbers for people and for `/metrics`.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Panics if the books do not balance. Costs a pass over everything, so only tests call it.
    pub fn audit(&self) {}
}
