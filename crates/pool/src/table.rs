//! The table of models: who waits, who is loaded, who goes.
//!
//! Invariant: pure. Time is an argument, and what is to be done is an [`Action`].

mod room;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(pub usize);

/// One that waits for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterId(u64);

/// When a model goes without being in the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// It never makes room for another, and its time to live does not count.
    pub pinned: bool,
    /// How long it stays after its last use; `None` for ever, or until its memory is needed.
    pub ttl: Option<Duration>,
}

/// Where a model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It takes no memory.
    Unloaded,
    /// It reads its weights.
    Loading,
    /// It serves requests.
    Ready,
    /// It serves those that have leases. Others wait for the load after this one.
    Draining,
    /// Its memory is being given back.
    Unloading,
    /// It could not be loaded.
    Failed {
        /// One line.
        why: String,
    },
}

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Load a model, and call [`Table::loaded`] or [`Table::failed`].
    Load(ModelId),
    /// Unload a model, and call [`Table::unloaded`].
    Unload(ModelId),
    /// One that waited has a lease of the model, which [`Table::release`] ends.
    Grant(ModelId, WaiterId),
    /// One that waited for the end of a model has it.
    Ended(WaiterId),
    /// One that waited gets nothing.
    Refuse(WaiterId, Refusal),
}

/// Why there is no lease.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The model could not be loaded.
    #[error("it cannot be loaded: {why}")]
    Failed {
        /// One line.
        why: String,
        /// Until it is tried again.
        retry_in: Duration,
    },
    /// It does not fit, even alone with what is pinned.
    #[error(
        "it needs {needed} bytes; all models together may take {budget}, of which {pinned} are pinned by others"
    )]
    TooLarge {
        /// Bytes of the model.
        needed: u64,
        /// Bytes of all models.
        budget: u64,
        /// Bytes of others that stay.
        pinned: u64,
    },
    /// As many wait as may.
    #[error("too many requests wait for models to load")]
    QueueFull,
}

/// What becomes of one that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// It has a lease, which [`Table::release`] ends.
    Granted,
    /// An [`Action`] says what becomes of it.
    Waits(WaiterId),
    /// It has none.
    Refused(Refusal),
}

/// What a list of models shows of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residence {
    /// Where it is.
    pub state: State,
    /// Bytes that it takes, or would take.
    pub bytes: u64,
    /// Leases of it.
    pub users: usize,
    /// Requests that wait for it.
    pub waiting: usize,
    /// When it was used last, since the table's beginning; `None` before its first use.
    pub last_used: Option<Duration>,
    /// When it goes unless it is used again, where that is known.
    pub expires: Option<Duration>,
    /// When it goes.
    pub policy: Policy,
    /// How often it was loaded.
    pub loads: u64,
}

/// The budget, and what of it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that models may take together; `None` for no limit.
    pub budget: Option<u64>,
    /// Bytes that they take.
    pub taken: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiter {
    id: WaiterId,
    since: Duration,
}

/// Why a model drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    /// Another one has waited too long for its memory.
    ForRoom,
    /// It was asked to go.
    Requested,
}

#[derive(Debug)]
struct Row {
    bytes: u64,
    policy: Policy,
    state: State,
    drain: Drain,
    users: usize,
    waiting: VecDeque<Waiter>,
    /// Who waits for its end.
    ending: Vec<WaiterId>,
    last_used: Option<Duration>,
    /// When a failed load is tried again.
    retry_at: Duration,
    failures: u32,
    loads: u64,
}

/// Which models are loaded, who uses them and who waits.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Row>,
    budget: Option<u64>,
    /// How long one waits for the memory of busy models before they are drained.
    patience: Duration,
    waiting_max: usize,
    next_waiter: u64,
    actions: Vec<Action>,
}

/// The pause after the first failed load; it doubles with each.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest.
const RETRY_MAX: Duration = Duration::from_secs(60);

impl Table {
    /// A table of models with their bytes, none of them loaded.
    pub fn new(
        models: impl IntoIterator<Item = (u64, Policy)>,
        budget: Option<u64>,
        patience: Duration,
        waiting_max: usize,
    ) -> Self {
        let rows = models.into_iter().map(|(bytes, policy)| Row::new(bytes, policy));
        let (rows, actions) = (rows.collect(), Vec::new());
        Self { rows, budget, patience, waiting_max, next_waiter: 0, actions }
    }

    /// Adds a model that is not loaded.
    pub fn add(&mut self, bytes: u64, policy: Policy) -> ModelId {
        self.rows.push(Row::new(bytes, policy));
        ModelId(self.rows.len() - 1)
    }

    /// One wants to use a model.
    pub fn arrive(&mut self, model: ModelId, now: Duration) -> Arrival {
        let waiting: usize = self.rows.iter().map(|row| row.waiting.len()).sum();
        let (id, waiting_max) = (WaiterId(self.next_waiter), self.waiting_max);
        let Some(row) = self.rows.get_mut(model.0) else { return Arrival::Refused(Refusal::QueueFull) };
        match &row.state {
            State::Ready if row.waiting.is_empty() => {
                row.users += 1;
                row.last_used = Some(now);
                return Arrival::Granted;
            }
            State::Failed { why } if now < row.retry_at => {
                let (why, retry_in) = (why.clone(), row.retry_at - now);
                return Arrival::Refused(Refusal::Failed { why, retry_in });
            }
            _ if waiting >= waiting_max => return Arrival::Refused(Refusal::QueueFull),
            _ => row.waiting.push_back(Waiter { id, since: now }),
        }
        self.next_waiter += 1;
        Arrival::Waits(id)
    }

    /// One wants a model to go, once those that use it have ended. `None`: it takes no memory already.
    pub fn unload(&mut self, model: ModelId) -> Option<WaiterId> {
        let id = WaiterId(self.next_waiter);
        let row = self.rows.get_mut(model.0)?;
        match row.state {
            State::Unloaded | State::Failed { .. } => return None,
            State::Ready | State::Draining => {
                (row.state, row.drain) = (State::Draining, Drain::Requested);
            }
            // It drains once it is loaded.
            State::Loading | State::Unloading => {}
        }
        row.ending.push(id);
        self.next_waiter += 1;
        Some(id)
    }

    /// One waits no longer. A load that it has caused goes on.
    pub fn leave(&mut self, waiter: WaiterId) {
        for row in &mut self.rows {
            row.waiting.retain(|other| other.id != waiter);
            row.ending.retain(|other| *other != waiter);
        }
    }

    /// A lease has ended.
    pub fn release(&mut self, model: ModelId, now: Duration) {
        if let Some(row) = self.rows.get_mut(model.0) {
            row.users = row.users.saturating_sub(1);
            row.last_used = Some(now);
        }
    }

    /// A model is loaded, and takes so many bytes.
    pub fn loaded(&mut self, model: ModelId, bytes: u64, now: Duration) {
        let Some(row) = self.rows.get_mut(model.0) else { return };
        (row.bytes, row.failures, row.last_used) = (bytes, 0, Some(now));
        row.loads += 1;
        let goes = !row.ending.is_empty();
        self.make_ready(model);
        if let Some(row) = self.rows.get_mut(model.0).filter(|_| goes) {
            (row.state, row.drain) = (State::Draining, Drain::Requested);
        }
    }

    /// A model could not be loaded.
    pub fn failed(&mut self, model: ModelId, why: &str, now: Duration) {
        let Some(row) = self.rows.get_mut(model.0) else { return };
        let pause = RETRY_FIRST.saturating_mul(1 << row.failures.min(6)).min(RETRY_MAX);
        row.failures += 1;
        row.retry_at = now + pause;
        row.state = State::Failed { why: why.to_owned() };
        let refusal = Refusal::Failed { why: why.to_owned(), retry_in: pause };
        let refused = row.waiting.drain(..).map(|waiter| Action::Refuse(waiter.id, refusal.clone()));
        self.actions.extend(refused);
        self.actions.extend(row.ending.drain(..).map(Action::Ended));
    }

    /// The memory of a model is given back.
    pub fn unloaded(&mut self, model: ModelId) {
        let Some(row) = self.rows.get_mut(model.0) else { return };
        row.state = State::Unloaded;
        self.actions.extend(row.ending.drain(..).map(Action::Ended));
    }

    /// When a model goes, from now on.
    pub fn set_policy(&mut self, model: ModelId, policy: Policy) {
        if let Some(row) = self.rows.get_mut(model.0) {
            row.policy = policy;
        }
    }

    /// What a list shows of a model.
    pub fn residence(&self, model: ModelId) -> Option<Residence> {
        let row = self.rows.get(model.0)?;
        Some(Residence {
            state: row.state.clone(),
            bytes: row.bytes,
            users: row.users,
            waiting: row.waiting.len(),
            last_used: row.last_used,
            expires: row.expires(),
            policy: row.policy,
            loads: row.loads,
        })
    }

    /// The budget, and what of it is taken.
    pub fn memory(&self) -> MemoryUse {
        MemoryUse { budget: self.budget, taken: self.taken() }
    }

    /// What follows from all that was said, at this time.
    pub fn advance(&mut self, now: Duration) -> Vec<Action> {
        self.expire(now);
        self.make_room(now);
        self.end_drains();
        std::mem::take(&mut self.actions)
    }

    /// When [`Table::advance`] has to be called at the latest.
    pub fn next_wake(&self, now: Duration) -> Option<Duration> {
        let expiries = self.rows.iter().filter_map(Row::expires);
        let patience = self.rows.iter().filter_map(|row| Some(row.waiting.front()?.since + self.patience));
        expiries.chain(patience).filter(|at| *at > now).min()
    }

    /// Serves requests from now on, those that wait first.
    fn make_ready(&mut self, model: ModelId) {
        let Some(row) = self.rows.get_mut(model.0) else { return };
        row.state = State::Ready;
        row.users += row.waiting.len();
        self.actions.extend(row.waiting.drain(..).map(|waiter| Action::Grant(model, waiter.id)));
    }

    fn expire(&mut self, now: Duration) {
        for row in &mut self.rows {
            if row.expires().is_some_and(|at| at <= now) {
                (row.state, row.drain) = (State::Draining, Drain::Requested);
            }
        }
    }

    /// Models that drain and have no user left go.
    fn end_drains(&mut self) {
        for (index, row) in self.rows.iter_mut().enumerate() {
            if row.state == State::Draining && row.users == 0 {
                row.state = State::Unloading;
                self.actions.push(Action::Unload(ModelId(index)));
            }
        }
    }

    fn taken(&self) -> u64 {
        self.rows.iter().filter(|row| row.takes_memory()).map(|row| row.bytes).sum()
    }
}

impl Row {
    /// A model that is not loaded.
    fn new(bytes: u64, policy: Policy) -> Self {
        Self {
            bytes,
            policy,
            state: State::Unloaded,
            drain: Drain::Requested,
            users: 0,
            waiting: VecDeque::new(),
            ending: Vec::new(),
            last_used: None,
            retry_at: Duration::ZERO,
            failures: 0,
            loads: 0,
        }
    }

    fn takes_memory(&self) -> bool {
        !matches!(self.state, State::Unloaded | State::Failed { .. })
    }

    fn is_idle(&self) -> bool {
        self.state == State::Ready && self.users == 0 && self.waiting.is_empty()
    }

    /// When it goes unless it is used again.
    fn expires(&self) -> Option<Duration> {
        let ttl = self.policy.ttl.filter(|_| self.is_idle() && !self.policy.pinned)?;
        // One that is too far away is never.
        self.last_used?.checked_add(ttl)
    }
}
