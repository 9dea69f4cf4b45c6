//! How long a plan takes beside a long queue and a full prefix cache, and what a step allocates.
//!
//! `cargo bench -p omnibus-core` prints a table: 256 running sequences, 10³ to 10⁵ waiting ones, 10⁶ cached blocks. It fails
//! if a plan takes more than 100 µs at any length of the queue, or if a step of 256 tokens allocates more than some lists
//! and what 16 newly cached blocks need.

#![allow(clippy::print_stdout, clippy::expect_used)]

use std::alloc::System;
use std::time::{Duration, Instant};

use omnibus_core::{
    CacheGroup, Outcome, Plan, PrefixCache, Request, Schedule, Scheduler, SequenceOutput, Settings, Stop,
    SwapSettings, Tuning,
};
use omnibus_kv::CacheKind;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RUNNING: usize = 256;
const CACHED_BLOCKS: usize = 1_000_000;
const BLOCK_SIZE: usize = 16;
const MOST: Duration = Duration::from_micros(100);
/// Most allocations of a step.
const MOST_ALLOCATIONS: f64 = 24.0;
/// Steps that are measured.
const STEPS: usize = 400;

fn main() {
    println!(
        "{:>8} {:>8} {:>10} {:>10} {:>10} {:>12}",
        "schedule", "queued", "plan p50", "plan p99", "step p50", "allocations"
    );
    let (mut slowest, mut most_allocations) = (Duration::ZERO, 0.0_f64);
    for (name, schedule) in [("fair", Schedule::Fair), ("fcfs", Schedule::Fcfs), ("split", Schedule::Split)] {
        for queued in [1_000, 10_000, 100_000] {
            let mut server = Server::new(schedule, queued);
            let Measured { plan, step, allocations } = server.measure();
            let p99 = plan[plan.len() * 99 / 100];
            println!(
                "{name:>8} {queued:>8} {:>10.1?} {p99:>10.1?} {:>10.1?} {allocations:>12.2}",
                plan[plan.len() / 2],
                step[step.len() / 2],
            );
            slowest = slowest.max(plan[plan.len() / 2]);
            most_allocations = most_allocations.max(allocations);
        }
    }
    assert!(slowest <= MOST, "a plan takes {slowest:.1?}, and may take {MOST:?}");
    assert!(
        most_allocations <= MOST_ALLOCATIONS,
        "a step of {RUNNING} tokens allocates {most_allocations:.1} times, and may {MOST_ALLOCATIONS} times"
    );
}

struct Measured {
    /// Ascending.
    plan: Vec<Duration>,
    /// Plan, apply and commit. Ascending.
    step: Vec<Duration>,
    /// For each step.
    allocations: f64,
}

/// A server at its limit of sequences, with a queue.
struct Server {
    scheduler: Scheduler,
    now: u64,
}

impl Server {
    fn new(schedule: Schedule, queued: usize) -> Self {
        let tuning = Tuning::default();
        let stages = omnibus_core::StageLimits { prefill: RUNNING, decode: RUNNING };
        let mut scheduler = Scheduler::new(Settings {
            block_size: BLOCK_SIZE,
            groups: vec![CacheGroup::of_kind(CacheKind::Full, 2 * CACHED_BLOCKS as u32)],
            max_sequences: RUNNING,
            max_step_tokens: 1 << 17,
            max_queue: queued + RUNNING,
            max_offline_queue: queued + RUNNING,
            max_context: 1 << 20,
            max_span_tokens: 1 << 20,
            schedule,
            tuning: Tuning { stages, ..tuning },
            prefix_cache: PrefixCache::On,
            cache_events: omnibus_core::CacheEvents::Ignored,
            session_ttl: 1_000_000,
            swap: SwapSettings::default(),
        });
        fill_cache(&mut scheduler);
        for number in 0..RUNNING + queued {
            let prompt = (0..64).map(|at| (number * 64 + at) as u32).collect();
            let tenant = number as u64 % 100;
            let request = Request { tenant, ..Request::new(prompt, 100_000) };
            scheduler.submit(number as u64, request).expect("it fits");
        }
        let mut server = Self { scheduler, now: 1_000_000 };
        while server.scheduler.stats().running < RUNNING {
            server.step();
        }
        for _ in 0..50 {
            server.step();
        }
        assert_eq!(server.scheduler.stats().queued, queued);
        assert!(server.scheduler.stats().groups[0].cached >= CACHED_BLOCKS);
        server
    }

    /// Computes a step. How long its plan took, and all of it.
    fn step(&mut self) -> (Duration, Duration) {
        self.now += 10_000;
        let started = Instant::now();
        let plan = self.scheduler.plan(self.now);
        let planned = started.elapsed();
        self.scheduler.apply(&plan);
        commit(&mut self.scheduler, &plan);
        (planned, started.elapsed())
    }

    fn measure(&mut self) -> Measured {
        let (mut plan, mut step) = (Vec::with_capacity(STEPS), Vec::with_capacity(STEPS));
        let region = Region::new(ALLOCATOR);
        for _ in 0..STEPS {
            let (planned, all) = self.step();
            plan.push(planned);
            step.push(all);
        }
        let allocations = region.change().allocations as f64 / STEPS as f64;
        plan.sort_unstable();
        step.sort_unstable();
        Measured { plan, step, allocations }
    }
}

/// Computes a prompt as long as the cache, so that its blocks stay cached when it ends.
fn fill_cache(scheduler: &mut Scheduler) {
    let prompts = CACHED_BLOCKS * BLOCK_SIZE / (1 << 19) + 1;
    for number in 0..prompts {
        let prompt = (0..1 << 19).map(|at| (number << 19 | at) as u32 | 1 << 31).collect();
        scheduler.submit(0, Request::new(prompt, 1)).expect("it fits");
        while !scheduler.is_idle() {
            let plan = scheduler.plan(0);
            scheduler.apply(&plan);
            commit(scheduler, &plan);
        }
    }
}

fn commit(scheduler: &mut Scheduler, plan: &Plan) {
    if plan.scheduled.is_empty() {
        return;
    }
    let mut outputs = Vec::with_capacity(plan.scheduled.len());
    let samplers = plan.scheduled.iter().filter(|scheduled| scheduled.samples > 0);
    outputs.extend(samplers.map(|_| SequenceOutput::token(1, Stop::No)));
    scheduler.commit(Outcome { plan: plan.id, outputs, took: Some(5_000) });
}
