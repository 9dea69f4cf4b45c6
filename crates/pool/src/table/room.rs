//! Who gets memory next, and who makes room for it.

use std::time::Duration;

use super::{Action, Drain, ModelId, Refusal, Row, State, Table};

/// What becomes of the next model to load.
enum Room {
    /// It fits beside what is loaded.
    Fits,
    /// It will, once models that go are gone.
    Comes,
    /// It does not as long as busy models are.
    Busy,
    /// It never does.
    Never { pinned: u64 },
}

impl Table {
    /// Begins the loads that are possible, the one that has been waited for longest first, and sends away models that are in
    /// the way.
    pub(super) fn make_room(&mut self, now: Duration) {
        let demand = self.demand(now);
        if demand.is_empty() {
            self.keep_drained();
        }
        for model in demand {
            match self.room_for(model, now) {
                Room::Fits => self.begin_load(model),
                Room::Never { pinned } => self.refuse_too_large(model, pinned),
                // Smaller ones that fit in what is free may pass: patience bounds how often.
                Room::Busy => {}
                // What comes free is for this one.
                Room::Comes => break,
            }
        }
    }

    /// Models that are waited for and not there, the longest wait first.
    fn demand(&self, now: Duration) -> Vec<ModelId> {
        let is_down = |row: &Row| match row.state {
            State::Unloaded => true,
            State::Failed { .. } => row.retry_at <= now,
            _ => false,
        };
        let wanted = self.rows.iter().enumerate().filter(|(_, row)| is_down(row));
        let since = |(index, row): (usize, &Row)| Some((row.waiting.front()?.id, ModelId(index)));
        let mut demand: Vec<_> = wanted.filter_map(since).collect();
        demand.sort();
        demand.into_iter().map(|(_, model)| model).collect()
    }

    fn room_for(&mut self, model: ModelId, now: Duration) -> Room {
        let (Some(row), Some(budget)) = (self.rows.get(model.0), self.budget) else { return Room::Fits };
        let (needed, since) = (row.bytes, row.waiting.front().map(|waiter| waiter.since));
        let taken = self.taken();
        if taken.saturating_add(needed) <= budget {
            return Room::Fits;
        }
        let bytes = |of: &dyn Fn(&Row) -> bool| -> u64 {
            self.rows.iter().filter(|row| row.takes_memory() && of(row)).map(|row| row.bytes).sum()
        };
        let pinned = bytes(&|row| row.policy.pinned);
        if pinned.saturating_add(needed) > budget {
            return Room::Never { pinned };
        }
        let missing = (taken + needed).saturating_sub(budget);
        let going = bytes(&|row| matches!(row.state, State::Draining | State::Unloading));
        let Some(missing) = missing.checked_sub(going).filter(|missing| *missing > 0) else {
            return Room::Comes;
        };
        let patient = since.is_some_and(|since| now < since + self.patience);
        let mut victims: Vec<usize> = (0..self.rows.len()).filter(|index| self.may_go(*index)).collect();
        // Idle ones first, the least recently used first.
        victims.sort_by_key(|index| self.rows.get(*index).map(|row| (!row.is_idle(), row.last_used)));
        let mut freed = 0;
        let mut chosen = Vec::new();
        for index in victims {
            let Some(row) = self.rows.get(index) else { continue };
            if freed >= missing || (patient && !row.is_idle()) {
                break;
            }
            freed += row.bytes;
            chosen.push(index);
        }
        if freed < missing {
            return Room::Busy;
        }
        self.drain_smallest_set(&chosen, freed - missing);
        Room::Comes
    }

    /// Drains what was chosen, without those that the others make unnecessary.
    fn drain_smallest_set(&mut self, chosen: &[usize], mut spare: u64) {
        for index in chosen {
            let Some(row) = self.rows.get_mut(*index) else { continue };
            if row.bytes <= spare {
                spare -= row.bytes;
                continue;
            }
            (row.state, row.drain) = (State::Draining, Drain::ForRoom);
        }
    }

    fn may_go(&self, index: usize) -> bool {
        self.rows.get(index).is_some_and(|row| row.state == State::Ready && !row.policy.pinned)
    }

    fn begin_load(&mut self, model: ModelId) {
        if let Some(row) = self.rows.get_mut(model.0) {
            row.state = State::Loading;
            self.actions.push(Action::Load(model));
        }
    }

    fn refuse_too_large(&mut self, model: ModelId, pinned: u64) {
        let Some(row) = self.rows.get_mut(model.0) else { return };
        let refusal =
            Refusal::TooLarge { needed: row.bytes, budget: self.budget.unwrap_or(u64::MAX), pinned };
        let refused = row.waiting.drain(..).map(|waiter| Action::Refuse(waiter.id, refusal.clone()));
        self.actions.extend(refused);
    }

    /// Where none waits for memory any more, models that drain for it stay.
    fn keep_drained(&mut self) {
        for index in 0..self.rows.len() {
            let row = self.rows.get(index);
            if row.is_some_and(|row| row.state == State::Draining && row.drain == Drain::ForRoom) {
                self.make_ready(ModelId(index));
            }
        }
    }
}
