//! Prompts with spans, which one step computes whole: chunks, prefixes, steps beyond their budget, and refusals.

#![allow(clippy::expect_used, clippy::single_range_in_vec_init)]

use std::ops::Range;

use omnibus_core::{
    CacheGroup, CacheMiss, Event, Failure, Goal, LatencyTargets, Outcome, Plan, PrefixCache, Rejection,
    Request, Schedule, Scheduler, SequenceId, SequenceOutput, Settings, Stop, SwapSettings, Tuning,
};
use omnibus_kv::CacheKind;

fn settings(schedule: Schedule, groups: &[(CacheKind, u32)]) -> Settings {
    Settings {
        block_size: 4,
        groups: groups.iter().map(|&(kind, blocks)| CacheGroup::of_kind(kind, blocks)).collect(),
        max_sequences: 8,
        max_step_tokens: 16,
        max_queue: 8,
        max_offline_queue: 8,
        max_context: 128,
        max_span_tokens: 40,
        schedule,
        tuning: Tuning::default(),
        prefix_cache: PrefixCache::On,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    }
}

fn every_schedule() -> [Schedule; 4] {
    [Schedule::Fair, Schedule::Fcfs, Schedule::Static, Schedule::Split]
}

fn scheduler(schedule: Schedule) -> Scheduler {
    let mut settings = settings(schedule, &[(CacheKind::Full, 64)]);
    settings.tuning.batch.sequences = 1;
    Scheduler::new(settings)
}

/// A prompt of its own with spans.
fn request(number: u32, prompt: usize, spans: &[Range<usize>]) -> Request {
    let prompt = (0..prompt as u32).map(|at| number * 100 + at).collect();
    Request { spans: spans.to_vec(), ..Request::new(prompt, 4) }
}

/// The positions of a step, which is applied and not committed.
fn begin(scheduler: &mut Scheduler) -> (Plan, Vec<Range<usize>>) {
    let plan = scheduler.plan(0);
    scheduler.apply(&plan);
    scheduler.audit();
    let positions = plan.scheduled.iter().map(|scheduled| scheduled.positions.clone()).collect();
    (plan, positions)
}

/// The positions of the next step, which takes `took`.
fn step_of(scheduler: &mut Scheduler, took: u64) -> Vec<Range<usize>> {
    let (plan, positions) = begin(scheduler);
    let samplers = plan.scheduled.iter().filter(|scheduled| scheduled.samples > 0);
    let outputs = samplers.map(|_| SequenceOutput::token(1, Stop::No)).collect();
    scheduler.commit(Outcome { plan: plan.id, outputs, took: Some(took) });
    positions
}

fn step(scheduler: &mut Scheduler) -> Vec<Range<usize>> {
    step_of(scheduler, 1_000)
}

#[test]
fn a_chunk_ends_before_a_span_that_does_not_fit() {
    for schedule in every_schedule() {
        let mut scheduler = scheduler(schedule);
        scheduler.submit(0, request(1, 30, &[10..20, 20..26])).expect("it fits");
        assert_eq!(step(&mut scheduler), [0..10], "{schedule:?}");
        assert_eq!(step(&mut scheduler), [10..26], "{schedule:?}: both fit");
        assert_eq!(step(&mut scheduler), [26..30], "{schedule:?}");
    }
}

#[test]
fn a_span_may_be_larger_than_a_step() {
    for schedule in every_schedule() {
        let mut scheduler = scheduler(schedule);
        scheduler.submit(0, request(1, 44, &[3..43])).expect("it fits");
        assert_eq!(step(&mut scheduler), [0..3], "{schedule:?}");
        assert_eq!(step(&mut scheduler), [3..43], "{schedule:?}");
        assert_eq!(step(&mut scheduler), [43..44], "{schedule:?}");
    }
}

#[test]
fn others_decode_on_behind_a_step_that_a_span_exceeds() {
    let mut scheduler = scheduler(Schedule::Fcfs);
    scheduler.submit(0, request(1, 3, &[])).expect("it fits");
    assert_eq!(step(&mut scheduler), [0..3]);
    for number in 2..4 {
        let spans = std::iter::once(0..20).collect::<Vec<_>>();
        scheduler.submit(0, request(number, 20, &spans)).expect("it fits");
    }
    assert_eq!(step(&mut scheduler), [3..4, 0..20]);
    assert_eq!(step(&mut scheduler), [4..5, 20..21, 0..20], "one more in each step");
}

/// Beside streams whose tokens are due, a second prompt's span waits for the next step.
#[test]
fn one_span_in_a_step_exceeds_its_time() {
    let mut settings = settings(Schedule::Fair, &[(CacheKind::Full, 200)]);
    settings.max_step_tokens = 512;
    settings.tuning.targets = LatencyTargets { ttft: None, tpot: Some(3_000) };
    let mut scheduler = Scheduler::new(settings);
    let stream = Request { goal: Goal::Generate { max_new_tokens: 60 }, ..request(1, 3, &[]) };
    scheduler.submit(0, stream).expect("it fits");
    for _ in 0..3 {
        step_of(&mut scheduler, 1_000);
    }
    for number in 2..4 {
        scheduler.submit(0, request(number, 42, &[0..40, 40..42])).expect("it fits");
    }
    let mut spans = 0;
    for _ in 0..8 {
        let positions = step_of(&mut scheduler, 50_000);
        let whole = positions.iter().filter(|positions| positions.len() >= 40).count();
        assert!(whole <= 1, "{positions:?}");
        spans += whole;
    }
    assert_eq!(spans, 2);
}

#[test]
fn a_prefix_ends_before_the_span_that_it_does_not_hold_whole() {
    for schedule in every_schedule() {
        let mut scheduler = scheduler(schedule);
        let asked = request(1, 30, &[10..20]);
        scheduler.submit(0, asked.clone()).expect("it fits");
        while !scheduler.is_idle() {
            step(&mut scheduler);
        }
        let changed = |at: usize, spans: &[Range<usize>]| {
            let mut request = Request { spans: spans.to_vec(), ..asked.clone() };
            request.prompt[at] = 9_999;
            let plan_of = |scheduler: &mut Scheduler, request| {
                let id = scheduler.submit(0, request).expect("it fits");
                let plan = scheduler.plan(0);
                let lookup = scheduler.apply(&plan).lookups[0];
                assert_eq!(lookup.sequence, id);
                scheduler.fail_steps();
                scheduler.cancel(id);
                lookup
            };
            plan_of(&mut scheduler.clone(), request)
        };
        assert_eq!(changed(25, &[10..20]).cached, 25, "{schedule:?}: behind the span");
        assert_eq!(changed(18, &[10..20]).cached, 10, "{schedule:?}: its keys depend on all of it");
        assert_eq!(changed(25, &[]).cached, 10, "{schedule:?}: so they do on the span");
        assert_eq!(changed(25, &[10..21]).cached, 10, "{schedule:?}");
    }
}

#[test]
fn a_span_at_the_end_of_a_cached_prompt_is_computed_again() {
    let mut scheduler = scheduler(Schedule::Fair);
    let asked = request(1, 24, &[8..24]);
    for expected in [0, 8] {
        scheduler.submit(0, asked.clone()).expect("it fits");
        let plan = scheduler.plan(0);
        let lookup = scheduler.apply(&plan).lookups[0];
        assert_eq!(lookup.cached, expected);
        assert_eq!(lookup.miss, Some(if expected == 0 { CacheMiss::Cold } else { CacheMiss::Span }));
        let outputs = plan.scheduled.iter().filter(|scheduled| scheduled.samples > 0);
        let outputs = outputs.map(|_| SequenceOutput::token(1, Stop::No)).collect();
        scheduler.commit(Outcome { plan: plan.id, outputs, took: None });
        while !scheduler.is_idle() {
            step(&mut scheduler);
        }
    }
}

#[test]
fn a_span_without_memory_is_refused() {
    let refused = |settings: Settings, request: Request| Scheduler::new(settings).submit(0, request).err();
    let full = settings(Schedule::Fair, &[(CacheKind::Full, 64)]);
    let too_long = Some(Rejection::SpanTooLong { span: 41, limit: 40 });
    assert_eq!(refused(full.clone(), request(1, 60, &[2..43])), too_long);
    assert_eq!(refused(full, request(1, 60, &[2..42, 42..60])), None);
    // Five blocks: one before the span that its window reaches into, and four of the span.
    let window = CacheKind::SlidingWindow { tokens: 3, sinks: 0 };
    let narrow = settings(Schedule::Fair, &[(CacheKind::Full, 64), (window, 5)]);
    assert_eq!(refused(narrow.clone(), request(1, 60, &[8..24])), None);
    let too_long = Some(Rejection::SpanTooLong { span: 17, limit: 16 });
    assert_eq!(refused(narrow, request(1, 60, &[8..25])), too_long);
}

#[test]
fn a_span_whose_step_fails_alone_ends_its_sequence() {
    let mut scheduler = scheduler(Schedule::Fair);
    let id = scheduler.submit(0, request(1, 40, &[0..40])).expect("it fits");
    let fail = |scheduler: &mut Scheduler| {
        assert_eq!(begin(scheduler).1, [0..40], "no smaller step can have it");
        scheduler.fail_steps()
    };
    assert_eq!(fail(&mut scheduler), []);
    assert_eq!(fail(&mut scheduler), [Event::Failed { sequence: id, failure: Failure::Step }]);
    assert!(scheduler.is_idle());
}

#[test]
fn a_preempted_sequence_resumes_at_a_boundary() {
    // Three blocks short of both.
    let mut scheduler = Scheduler::new(settings(Schedule::Fcfs, &[(CacheKind::Full, 9)]));
    let ids: Vec<SequenceId> = (1..3)
        .map(|number| {
            let asked =
                Request { goal: Goal::Generate { max_new_tokens: 9 }, ..request(number, 15, &[2..13]) };
            scheduler.submit(0, asked).expect("it fits")
        })
        .collect();
    let mut resumed = Vec::new();
    while !scheduler.is_idle() {
        let (plan, _) = begin(&mut scheduler);
        let second = plan.scheduled.iter().find(|scheduled| scheduled.sequence == ids[1]);
        resumed.extend(second.filter(|second| second.cached > 0).map(|second| second.cached));
        let samplers = plan.scheduled.iter().filter(|scheduled| scheduled.samples > 0);
        let outputs = samplers.map(|_| SequenceOutput::token(1, Stop::No)).collect();
        scheduler.commit(Outcome { plan: plan.id, outputs, took: None });
    }
    assert!(scheduler.stats().preemptions_total > 0, "the test needs fewer blocks");
    assert!(resumed.iter().all(|cached| *cached <= 2 || *cached >= 13), "{resumed:?}");
}
