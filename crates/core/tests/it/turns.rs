//! Who goes first under each schedule, and who may wait.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use omnibus_core::{
    CacheGroup, HoldReason, Outcome, Plan, PrefixCache, Rejection, Request, Schedule, Scheduler, SequenceId,
    SequenceOutput, Settings, StageLimits, StaticBatch, Stop, SwapSettings, Tick, Tuning,
};
use omnibus_kv::CacheKind;

fn settings(schedule: Schedule) -> Settings {
    Settings {
        block_size: 4,
        groups: vec![CacheGroup::of_kind(CacheKind::Full, 64)],
        max_sequences: 2,
        max_step_tokens: 16,
        max_queue: 8,
        max_offline_queue: 8,
        max_context: 128,
        max_span_tokens: 128,
        schedule,
        tuning: Tuning {
            batch: StaticBatch { sequences: 3, wait: 1_000 },
            stages: StageLimits { prefill: 1, decode: 1 },
            ..Tuning::default()
        },
        prefix_cache: PrefixCache::Off,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    }
}

fn request(tenant: u64, priority: i32, answer: usize) -> Request {
    Request { tenant, priority, ..Request::new(vec![1, 2, 3], answer) }
}

fn submit(scheduler: &mut Scheduler, request: Request) {
    scheduler.submit(0, request).expect("there is room");
}

/// Plans and computes a step. Whose tokens were in it, and how many.
fn step(scheduler: &mut Scheduler, now: Tick) -> Vec<(u64, usize)> {
    let plan = scheduler.plan(now);
    if plan.is_empty() {
        return Vec::new();
    }
    scheduler.apply(&plan);
    if !plan.scheduled.is_empty() {
        commit(scheduler, &plan, 1_000);
    }
    scheduler.audit();
    plan.scheduled.iter().map(|scheduled| (scheduled.sequence.0, scheduled.positions.len())).collect()
}

fn commit(scheduler: &mut Scheduler, plan: &Plan, took: Tick) {
    let samples = plan.scheduled.iter().filter(|scheduled| scheduled.samples > 0);
    let outputs = samples.map(|_| SequenceOutput::token(1, Stop::No)).collect();
    scheduler.commit(Outcome { plan: plan.id, outputs, took: Some(took) });
}

/// In which order sequences begin.
fn beginnings(scheduler: &mut Scheduler) -> Vec<u64> {
    let mut begun = Vec::new();
    for round in 0.. {
        for (id, _) in step(scheduler, round * 1_000) {
            if !begun.contains(&id) {
                begun.push(id);
            }
        }
        if scheduler.is_idle() {
            return begun;
        }
    }
    begun
}

#[test]
fn tenants_are_scheduled_round_robin() {
    let mut scheduler = Scheduler::new(settings(Schedule::Fair));
    (0..6).for_each(|_| submit(&mut scheduler, request(1, 0, 4)));
    (0..2).for_each(|_| submit(&mut scheduler, request(2, 0, 4)));
    assert_eq!(beginnings(&mut scheduler), [0, 6, 1, 7, 2, 3, 4, 5]);
}

#[test]
fn priority_is_a_head_start() {
    let mut scheduler = Scheduler::new(Settings { max_sequences: 1, ..settings(Schedule::Fair) });
    let at = [(0, 0), (9_000_000, 1), (30_000_000, 2), (41_000_000, 4)];
    for (arrived, priority) in at {
        scheduler.submit(arrived, request(0, priority, 1)).expect("there is room");
    }
    assert_eq!(beginnings(&mut scheduler), [1, 0, 3, 2], "they came at -1, 0, 1 and 10 seconds");
}

#[test]
fn a_full_queue_has_places_for_a_tenant_below_its_share() {
    let mut scheduler = Scheduler::new(settings(Schedule::Fair));
    let mut submit = |tenant| scheduler.submit(0, request(tenant, 0, 1));
    assert!((0..8).all(|_| submit(1).is_ok()));
    assert_eq!(submit(1), Err(Rejection::QueueFull { queued: 8, limit: 8 }));
    assert!((0..2).all(|_| submit(2).is_ok()));
    assert_eq!(
        submit(2),
        Err(Rejection::QueueFull { queued: 10, limit: 8 }),
        "the queue is bounded all the same"
    );
    assert_eq!(submit(3), Err(Rejection::QueueFull { queued: 10, limit: 8 }));
}

#[test]
fn retry_after_grows_with_the_queue() {
    let mut scheduler = Scheduler::new(settings(Schedule::Fair));
    assert_eq!(scheduler.retry_after(), 0, "the queue is empty");
    let mut after = Vec::new();
    scheduler.submit(0, request(0, 0, 40)).expect("there is room");
    for round in 0..20 {
        step(&mut scheduler, round * 1_000);
    }
    for _ in 0..8 {
        scheduler.submit(20_000, request(0, 0, 40)).expect("there is room");
        after.push(scheduler.retry_after());
    }
    assert!(after.windows(2).all(|pair| pair[0] < pair[1]), "{after:?}");
    // Nine answers of forty tokens, two at a time, a millisecond a token; half of that.
    assert!((60_000..140_000).contains(&after[7]), "{after:?}");
}

#[test]
fn a_batch_begins_when_it_is_full_or_has_waited_and_ends_before_the_next() {
    let settings = Settings { max_sequences: 4, ..settings(Schedule::Static) };
    let mut scheduler = Scheduler::new(settings);
    let submit = |scheduler: &mut Scheduler, now| {
        scheduler.submit(now, request(0, 0, 2)).expect("there is room");
    };
    submit(&mut scheduler, 0);
    submit(&mut scheduler, 10);
    assert_eq!(step(&mut scheduler, 999), [], "two of three");
    assert_eq!(scheduler.next_wakeup(), Some(1_000));
    assert_eq!(step(&mut scheduler, 1_000), [(0, 3), (1, 3)], "the first has waited enough");
    (0..3).for_each(|_| submit(&mut scheduler, 1_000));
    assert_eq!(step(&mut scheduler, 2_000), [(0, 1), (1, 1)], "no sequence joins");
    assert_eq!(step(&mut scheduler, 2_001), [(2, 3), (3, 3), (4, 3)], "full at once");
}

#[test]
fn a_held_member_of_a_batch_resumes_before_the_next_batch_begins() {
    let settings = Settings { max_sequences: 4, ..settings(Schedule::Static) };
    let mut scheduler = Scheduler::new(settings);
    let submit = |scheduler: &mut Scheduler, now, answer| {
        scheduler.submit(now, request(0, 0, answer)).expect("there is room")
    };
    let [_, held, _] = [1, 3, 1].map(|answer| submit(&mut scheduler, 0, answer));
    scheduler.hold(held, HoldReason::Transfer);
    submit(&mut scheduler, 0, 1);
    assert_eq!(step(&mut scheduler, 1), [(0, 3), (2, 3), (3, 3)], "a batch of three");
    let next = submit(&mut scheduler, 10, 1);
    assert_eq!(
        step(&mut scheduler, 20),
        [],
        "the next batch is not full, and the held one is not waited for"
    );
    scheduler.release_hold(held, HoldReason::Transfer);
    assert_eq!(step(&mut scheduler, 2_000), [(held.0, 3)], "its batch resumes, though the next one is due");
    scheduler.cancel(held);
    assert_eq!(step(&mut scheduler, 2_001), [(next.0, 3)]);
}

#[test]
fn a_split_step_prefills_or_decodes_and_handoffs_are_reported() {
    let mut scheduler = Scheduler::new(settings(Schedule::Split));
    (0..2).for_each(|_| submit(&mut scheduler, request(0, 0, 3)));
    let mut handed = Vec::new();
    let mut steps = Vec::new();
    while !scheduler.is_idle() {
        handed.extend(scheduler.plan(0).handoff.iter().map(|SequenceId(id)| *id));
        steps.push(step(&mut scheduler, 0));
    }
    assert_eq!(handed, [0, 1]);
    let reads = |step: &Vec<(u64, usize)>| step.iter().any(|(_, tokens)| *tokens > 1);
    assert!(
        steps.iter().all(|step| step.iter().all(|(_, tokens)| (*tokens > 1) == reads(step))),
        "{steps:?}"
    );
    assert_eq!(scheduler.stats().handoffs_total, 2);
}
