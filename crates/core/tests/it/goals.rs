//! Requests that only compute their prompt: no samples, an end with the last position, and shared blocks.

#![allow(clippy::expect_used)]

use omnibus_core::{
    CacheGroup, Event, FinishReason, Goal, Outcome, PrefixCache, Rejection, Request, Schedule, Scheduler,
    SequenceOutput, Settings, Stop, SwapSettings, Token, Tuning,
};
use omnibus_kv::CacheKind;

fn settings() -> Settings {
    Settings {
        block_size: 4,
        groups: vec![CacheGroup::of_kind(CacheKind::Full, 4)],
        max_sequences: 4,
        max_step_tokens: 6,
        max_queue: 8,
        max_offline_queue: 8,
        max_context: 16,
        max_span_tokens: 16,
        schedule: Schedule::Fcfs,
        tuning: Tuning::default(),
        prefix_cache: PrefixCache::On,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    }
}

fn compute(tokens: Token) -> Request {
    Request::with_goal((0..tokens).collect(), Goal::Compute)
}

/// Runs until nothing is left. The positions that were computed, how many were sampled, and the events.
fn run(scheduler: &mut Scheduler) -> (Vec<std::ops::Range<usize>>, usize, Vec<Event>) {
    let (mut computed, mut sampled, mut events) = (Vec::new(), 0, Vec::new());
    while !scheduler.is_idle() {
        let plan = scheduler.plan(0);
        events.extend(scheduler.apply(&plan).events);
        let samples = plan.scheduled.iter().filter(|part| part.samples > 0).count();
        sampled += samples;
        computed.extend(plan.scheduled.iter().map(|part| part.positions.clone()));
        let outputs = (0..samples).map(|_| SequenceOutput::token(1, Stop::No)).collect();
        events.extend(scheduler.commit(Outcome { plan: plan.id, outputs, took: None }));
        scheduler.audit();
    }
    (computed, sampled, events)
}

#[test]
fn a_prompt_is_computed_to_its_last_position_and_nothing_is_sampled() {
    let mut scheduler = Scheduler::new(settings());
    let sequence = scheduler.submit(0, compute(15)).expect("it fits");
    let (computed, sampled, events) = run(&mut scheduler);
    assert_eq!(computed, [0..6, 6..12, 12..15]);
    assert_eq!(sampled, 0);
    assert_eq!(events, [Event::Finished { sequence, reason: FinishReason::Computed }]);
}

#[test]
fn it_may_fill_the_context_and_the_blocks_and_no_more() {
    let mut scheduler = Scheduler::new(settings());
    scheduler.submit(0, compute(16)).expect("sixteen positions fit four blocks");
    run(&mut scheduler);
    let refused = scheduler.submit(0, compute(17));
    assert_eq!(refused, Err(Rejection::TooLong { needed: 17, total: 16 }));
    let mut small = Scheduler::new(Settings { max_context: 64, ..settings() });
    assert!(small.submit(0, compute(16)).is_ok());
    assert!(small.submit(0, compute(17)).is_err(), "there are blocks for sixteen positions");
}

#[test]
fn its_blocks_are_cached_for_others() {
    let mut scheduler = Scheduler::new(settings());
    scheduler.submit(0, compute(10)).expect("it fits");
    run(&mut scheduler);
    scheduler.submit(0, Request::new((0..10).collect(), 2)).expect("it fits");
    let (computed, sampled, _) = run(&mut scheduler);
    assert_eq!(computed, [9..10, 10..11], "all but the last position is found, the partial block included");
    assert_eq!(sampled, 2);
}

#[test]
fn it_computes_cached_positions_that_it_may_not_share() {
    let mut scheduler = Scheduler::new(settings());
    scheduler.submit(0, compute(12)).expect("it fits");
    run(&mut scheduler);
    let most = |tokens| Request { max_cached_tokens: tokens, ..compute(12) };
    for (tokens, expected) in [(9, 9..12), (8, 8..12), (3, 3..9), (0, 0..6), (99, 11..12)] {
        scheduler.submit(0, most(tokens)).expect("it fits");
        let (computed, _, _) = run(&mut scheduler);
        assert_eq!(computed.first(), Some(&expected), "at most {tokens} of its tokens are shared");
    }
}

#[test]
fn it_ends_alone_in_a_batch_with_answers() {
    let mut scheduler = Scheduler::new(settings());
    let answer = scheduler.submit(0, Request::new(vec![7, 8], 3)).expect("it fits");
    let prompt = scheduler.submit(0, compute(3)).expect("it fits");
    let (computed, sampled, events) = run(&mut scheduler);
    assert_eq!(computed, [0..2, 0..3, 2..3, 3..4]);
    assert_eq!(sampled, 3);
    let ended = events.iter().filter(|event| event.is_last()).map(Event::sequence);
    assert_eq!(ended.collect::<Vec<_>>(), [prompt, answer]);
}
