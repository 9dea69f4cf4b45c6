//! A few threads of our own that share a kernel's tasks with the stream's worker that calls it.
//!
//! Invariants: no locks. The caller always works too and waits only for threads that took part, so a
//! thread that sleeps or is not scheduled costs nothing. Idle threads spin for some microseconds, then park.
//! A second caller at the same time runs its tasks alone.

use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long an idle thread looks for work before it parks: longer than the gap between two kernels of a step.
const SPIN: Duration = Duration::from_micros(60);

/// The state's low half counts the helpers inside the current job; then comes whether it takes more; the
/// rest numbers the jobs.
const OPEN: u64 = 1 << 32;
const NEXT_JOB: u64 = 1 << 33;
const INSIDE: u64 = OPEN - 1;

#[derive(Clone, Copy)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

struct Pool {
    state: AtomicU64,
    next: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    busy: AtomicBool,
    helpers: OnceLock<Vec<Helper>>,
    threads: usize,
}

struct Helper {
    parked: AtomicBool,
    thread: OnceLock<Thread>,
}

// SAFETY: `job` is written only by the caller that holds `busy`, while no helper is inside and none can
// enter (the state is not open); helpers read it only between entering and leaving.
unsafe impl Sync for Pool {}
// SAFETY: the job's pointer is only followed under the same rules.
unsafe impl Send for Pool {}

static POOL: OnceLock<Pool> = OnceLock::new();

/// Threads that work on a kernel, the caller included.
pub fn threads() -> usize {
    pool().threads
}

/// Calls `task` with each of `0..tasks`, on all threads, in any order; returns when all are done.
pub(super) fn run(tasks: usize, task: impl Fn(usize) + Sync) {
    let pool = pool();
    let alone = tasks <= 1 || pool.threads <= 1;
    if alone || pool.busy.swap(true, Ordering::Acquire) {
        return (0..tasks).for_each(task);
    }
    pool.share(tasks, &task);
    pool.busy.store(false, Ordering::Release);
}

fn pool() -> &'static Pool {
    POOL.get_or_init(|| {
        let available = std::thread::available_parallelism().map_or(1, |n| n.get());
        let asked = crate::environment::variable("OMNIBUS_CPU_THREADS").and_then(|v| v.parse().ok());
        Pool {
            state: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            busy: AtomicBool::new(false),
            helpers: OnceLock::new(),
            threads: asked.unwrap_or(available).clamp(1, 256),
        }
    })
}

impl Pool {
    /// The caller holds `busy`.
    fn share(&'static self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let helpers = self.helpers.get_or_init(|| self.start());
        // SAFETY: the job's lifetime ends below, when no helper is inside any more.
        let task: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(task) };
        let job = Job { task, tasks };
        // SAFETY: we hold `busy` and the job is closed, so no helper reads it.
        unsafe { *self.job.get() = Some(job) };
        self.next.store(0, Ordering::Relaxed);
        self.state.fetch_add(NEXT_JOB | OPEN, Ordering::SeqCst);
        for helper in helpers.iter().take(tasks - 1) {
            if helper.parked.load(Ordering::SeqCst)
                && helper.parked.swap(false, Ordering::SeqCst)
                && let Some(thread) = helper.thread.get()
            {
                thread.unpark();
            }
        }
        self.work(job);
        self.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0u32;
        while self.state.load(Ordering::Acquire) & INSIDE != 0 {
            spins += 1;
            // A helper without a core needs ours to finish.
            if spins > 20_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    fn work(&self, job: Job) {
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= job.tasks {
                return;
            }
            // SAFETY: the caller of `run` waits until this thread is done.
            unsafe { (*job.task)(i) };
        }
    }

    fn start(&'static self) -> Vec<Helper> {
        let helpers: Vec<Helper> = (1..self.threads)
            .map(|_| Helper { parked: AtomicBool::new(false), thread: OnceLock::new() })
            .collect();
        for i in 0..helpers.len() {
            let thread = std::thread::Builder::new().name(format!("kernel {}", i + 1));
            // A thread that cannot be started is one helper fewer: the others take its share.
            let _ = thread.spawn(move || self.help(i));
        }
        helpers
    }

    /// What helper `index` does for ever.
    fn help(&'static self, index: usize) {
        let me = loop {
            // `start` has not yet returned when the first helpers run.
            match self.helpers.get().and_then(|all| all.get(index)) {
                Some(me) => break me,
                None => std::thread::yield_now(),
            }
        };
        let _ = me.thread.set(std::thread::current());
        let mut last = 0;
        loop {
            last = self.enter_after(last, me);
            let guard = AbortOnPanic;
            // SAFETY: we are inside, so the job stays as it is.
            if let Some(job) = unsafe { *self.job.get() } {
                self.work(job);
            }
            std::mem::forget(guard);
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an open job other than `last`, counts this thread in, and returns the job's number.
    fn enter_after(&self, last: u64, me: &Helper) -> u64 {
        let mut since = Instant::now();
        let mut spins = 0u32;
        loop {
            let state = self.state.load(Ordering::SeqCst);
            let number = state / NEXT_JOB;
            if state & OPEN != 0 && number != last {
                let entered =
                    self.state.compare_exchange(state, state + 1, Ordering::SeqCst, Ordering::Relaxed);
                if entered.is_ok() {
                    return number;
                }
                continue;
            }
            spins = spins.wrapping_add(1);
            if !spins.is_multiple_of(64) || since.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            me.parked.store(true, Ordering::SeqCst);
            let state = self.state.load(Ordering::SeqCst);
            if state & OPEN == 0 || state / NEXT_JOB == last {
                std::thread::park();
            }
            me.parked.store(false, Ordering::SeqCst);
            since = Instant::now();
        }
    }
}

/// A panic in a task must not leave the caller waiting for ever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for tasks in [0, 1, 2, 3, 7, 100, 1000] {
            for _ in 0..200 {
                let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                run(tasks, |i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn callers_at_the_same_time_all_finish() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let sum = AtomicUsize::new(0);
                        run(16, |i| {
                            sum.fetch_add(i, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 120);
                    }
                });
            }
        });
    }
}
