//! Tasks that threads take, in turn among tenants.
//!
//! Invariant: a tenant's next task comes after one of each other tenant that has tasks, so that many slow ones of one tenant
//! do not delay the others.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A queue that threads share.
pub(super) struct Tasks<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

struct Waiting<T> {
    /// The tenants that have tasks, by turn. None is without a task.
    tenants: VecDeque<(u64, VecDeque<T>)>,
    is_closed: bool,
}

impl<T> Tasks<T> {
    /// No tasks.
    pub(super) fn new() -> Self {
        let waiting = Waiting { tenants: VecDeque::new(), is_closed: false };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    /// Adds a task, after the others of its tenant.
    pub(super) fn push(&self, tenant: u64, task: T) {
        let mut waiting = self.lock();
        match waiting.tenants.iter_mut().find(|(of, _)| *of == tenant) {
            Some((_, tasks)) => tasks.push_back(task),
            None => waiting.tenants.push_back((tenant, VecDeque::from([task]))),
        }
        self.changed.notify_one();
    }

    /// The next task. Waits for one; `None` when the queue is closed.
    pub(super) fn take(&self) -> Option<T> {
        let mut waiting = self.lock();
        while !waiting.is_closed {
            if let Some(task) = waiting.pop() {
                return Some(task);
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Drops the tasks that are not kept.
    pub(super) fn retain(&self, keep: impl Fn(&T) -> bool) {
        let mut waiting = self.lock();
        waiting.tenants.iter_mut().for_each(|(_, tasks)| tasks.retain(&keep));
        waiting.tenants.retain(|(_, tasks)| !tasks.is_empty());
    }

    /// No task is taken from now on.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Waiting<T> {
    fn pop(&mut self) -> Option<T> {
        let (tenant, mut tasks) = self.tenants.pop_front()?;
        let task = tasks.pop_front();
        if !tasks.is_empty() {
            self.tenants.push_back((tenant, tasks));
        }
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_many_tasks_delays_another_by_one() {
        let tasks = Tasks::new();
        for task in ["a1", "a2", "a3", "a4"] {
            tasks.push(1, task);
        }
        assert_eq!(tasks.take(), Some("a1"));
        tasks.push(2, "b1");
        tasks.push(2, "b2");
        tasks.push(3, "c1");
        let order: Vec<_> = (0..6).filter_map(|_| tasks.take()).collect();
        assert_eq!(order, ["a2", "b1", "c1", "a3", "b2", "a4"]);
    }

    #[test]
    fn a_task_that_is_dropped_takes_no_turn() {
        let tasks = Tasks::new();
        tasks.push(1, "a1");
        tasks.push(2, "b1");
        tasks.push(1, "a2");
        tasks.retain(|task| *task != "a1" && *task != "b1");
        assert_eq!(tasks.take(), Some("a2"));
    }

    #[test]
    fn a_thread_waits_for_a_task_and_ends_when_the_queue_is_closed() {
        let tasks = Tasks::new();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| std::iter::from_fn(|| tasks.take()).collect::<Vec<_>>());
            tasks.push(1, "a");
            while !tasks.lock().tenants.is_empty() {
                std::thread::yield_now();
            }
            tasks.close();
            assert_eq!(thread.join().ok(), Some(vec!["a"]));
        });
    }
}
