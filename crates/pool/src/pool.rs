//! Carries out what the table decides: loads and unloads on threads of their own, and leases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::table::{Action, Arrival, MemoryUse, ModelId, Policy, Refusal, Residence, Table, WaiterId};

/// A model that can be loaded and unloaded, many times.
pub trait Loadable: Send + Sync + 'static {
    /// Loads it and waits until it is loaded. Returns the bytes that it takes. Fails with one line.
    fn load(&self) -> Result<u64, String>;
    /// Unloads it and waits until its memory is given back.
    fn unload(&self);
}

/// The limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// Bytes that loaded models may take together; `None` for no limit.
    pub budget: Option<u64>,
    /// How long a request waits for the memory of busy models before they get no new requests.
    pub patience: Duration,
    /// Most requests that wait for models.
    pub waiting_max: usize,
}

/// Models, of which as many are loaded as are used and fit. Clones share it.
pub struct Pool<M: Loadable>(Arc<Inner<M>>);

impl<M: Loadable> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<M: Loadable> {
    models: RwLock<Vec<Arc<M>>>,
    state: Mutex<Shared<M>>,
    since: Instant,
    /// Loads and unloads run on its threads.
    runtime: Handle,
    /// Notified when the next decision may be due earlier.
    changed: Arc<Notify>,
}

impl<M: Loadable> Drop for Inner<M> {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

struct Shared<M: Loadable> {
    table: Table,
    waiting: HashMap<WaiterId, oneshot::Sender<Answer<M>>>,
    ending: HashMap<WaiterId, oneshot::Sender<()>>,
}

type Answer<M> = Result<Lease<M>, Refusal>;

/// The right to use a loaded model, which stays loaded until it is dropped.
pub struct Lease<M: Loadable> {
    pool: Pool<M>,
    model: ModelId,
}

impl<M: Loadable> Drop for Lease<M> {
    fn drop(&mut self) {
        let now = self.pool.now();
        self.pool.lock().table.release(self.model, now);
        self.pool.advance();
    }
}

impl<M: Loadable> Pool<M> {
    /// A pool of models, none of them loaded. Must be called in a Tokio runtime.
    pub fn new(models: Vec<(M, u64, Policy)>, settings: &PoolSettings) -> Self {
        let PoolSettings { budget, patience, waiting_max } = *settings;
        let rows = models.iter().map(|(_, bytes, policy)| (*bytes, *policy)).collect::<Vec<_>>();
        let table = Table::new(rows, budget, patience, waiting_max);
        let state = Mutex::new(Shared { table, waiting: HashMap::new(), ending: HashMap::new() });
        let pool = Self(Arc::new(Inner {
            models: RwLock::new(models.into_iter().map(|(model, ..)| Arc::new(model)).collect()),
            state,
            since: Instant::now(),
            runtime: Handle::current(),
            changed: Arc::default(),
        }));
        tokio::spawn(keep_time(Arc::downgrade(&pool.0), Arc::clone(&pool.0.changed)));
        pool
    }

    /// Adds a model that is not loaded.
    pub fn add(&self, model: M, bytes: u64, policy: Policy) -> ModelId {
        let mut models = self.0.models.write().unwrap_or_else(PoisonError::into_inner);
        models.push(Arc::new(model));
        // Under the lock of the models: both lists have one order.
        self.lock().table.add(bytes, policy)
    }

    /// The models, in the order of their ids.
    pub fn models(&self) -> Vec<Arc<M>> {
        self.0.models.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One of them.
    pub fn model(&self, model: ModelId) -> Option<Arc<M>> {
        self.0.models.read().unwrap_or_else(PoisonError::into_inner).get(model.0).cloned()
    }

    /// A lease of a model, once it is loaded. Dropping the future gives up the place; a load that it has caused goes on.
    pub async fn lease(&self, model: ModelId) -> Answer<M> {
        let (waiter, answer) = {
            let mut shared = self.lock();
            match shared.table.arrive(model, self.now()) {
                Arrival::Granted => return Ok(Lease { pool: self.clone(), model }),
                Arrival::Refused(refusal) => return Err(refusal),
                Arrival::Waits(waiter) => {
                    let (answer_tx, answer) = oneshot::channel();
                    shared.waiting.insert(waiter, answer_tx);
                    (waiter, answer)
                }
            }
        };
        let _place = Place { pool: self, waiter };
        self.advance();
        // The sender is dropped with the pool alone.
        answer.await.unwrap_or(Err(Refusal::QueueFull))
    }

    /// Unloads a model once its leases have ended, and waits until its memory is given back; at once where it takes none.
    pub async fn unload(&self, model: ModelId) {
        let (waiter, ended) = {
            let mut shared = self.lock();
            let Some(waiter) = shared.table.unload(model) else { return };
            let (ended_tx, ended) = oneshot::channel();
            shared.ending.insert(waiter, ended_tx);
            (waiter, ended)
        };
        let _place = Place { pool: self, waiter };
        self.advance();
        // The sender is dropped with the pool alone.
        let _ = ended.await;
    }

    /// When a model goes, from now on.
    pub fn set_policy(&self, model: ModelId, policy: Policy) {
        self.lock().table.set_policy(model, policy);
        self.advance();
    }

    /// What a list shows of a model.
    pub fn residence(&self, model: ModelId) -> Option<Residence> {
        self.lock().table.residence(model)
    }

    /// The budget, and what of it is taken.
    pub fn memory(&self) -> MemoryUse {
        self.lock().table.memory()
    }

    /// The time of the table.
    pub fn now(&self) -> Duration {
        self.0.since.elapsed()
    }

    /// A panic cannot leave the table half-written.
    fn lock(&self) -> MutexGuard<'_, Shared<M>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is due.
    fn advance(&self) {
        let actions = self.lock().table.advance(self.now());
        for action in actions {
            self.act(action);
        }
        self.0.changed.notify_one();
    }

    /// Without the lock: a lease that finds none waiting is dropped.
    fn act(&self, action: Action) {
        match action {
            Action::Load(model) => _ = self.0.runtime.spawn(self.clone().load(model)),
            Action::Unload(model) => _ = self.0.runtime.spawn(self.clone().end(model)),
            Action::Grant(model, waiter) => self.answer(waiter, Ok(Lease { pool: self.clone(), model })),
            Action::Refuse(waiter, refusal) => self.answer(waiter, Err(refusal)),
            Action::Ended(waiter) => {
                if let Some(ended) = self.lock().ending.remove(&waiter) {
                    let _ = ended.send(());
                }
            }
        }
    }

    fn answer(&self, waiter: WaiterId, answer: Answer<M>) {
        let waiting = self.lock().waiting.remove(&waiter);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    async fn load(self, model: ModelId) {
        let loaded = self.on_a_thread(model, M::load).await;
        let now = self.now();
        match loaded {
            Some(Ok(bytes)) => self.lock().table.loaded(model, bytes, now),
            Some(Err(why)) => self.lock().table.failed(model, &why, now),
            None => self.lock().table.failed(model, "the load panicked; this is a bug", now),
        }
        self.advance();
    }

    async fn end(self, model: ModelId) {
        // What panics has ended, too.
        let _ = self.on_a_thread(model, M::unload).await;
        self.lock().table.unloaded(model);
        self.advance();
    }

    /// Runs work that takes seconds; `None` where it panics.
    async fn on_a_thread<T: Send + 'static>(&self, model: ModelId, work: fn(&M) -> T) -> Option<T> {
        let of = self.model(model)?;
        tokio::task::spawn_blocking(move || work(&of)).await.ok()
    }
}

/// A place among those that wait.
struct Place<'a, M: Loadable> {
    pool: &'a Pool<M>,
    waiter: WaiterId,
}

impl<M: Loadable> Drop for Place<'_, M> {
    fn drop(&mut self) {
        let mut shared = self.pool.lock();
        shared.table.leave(self.waiter);
        // A lease in it is released without the lock.
        let waiting = (shared.waiting.remove(&self.waiter), shared.ending.remove(&self.waiter));
        drop(shared);
        drop(waiting);
        self.pool.advance();
    }
}

/// Lets the table decide when time alone changes something, as long as the pool is there.
async fn keep_time<M: Loadable>(pool: Weak<Inner<M>>, changed: Arc<Notify>) {
    loop {
        let wait = {
            let Some(pool) = pool.upgrade().map(Pool) else { return };
            let now = pool.now();
            pool.lock().table.next_wake(now).map(|at| at - now)
        };
        let is_due = match wait {
            None => {
                changed.notified().await;
                false
            }
            Some(wait) => tokio::time::timeout(wait, changed.notified()).await.is_err(),
        };
        if is_due && let Some(pool) = pool.upgrade().map(Pool) {
            pool.advance();
        }
    }
}

#[cfg(test)]
mod tests;
