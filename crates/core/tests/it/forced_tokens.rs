//! Tokens that are appended without being sampled: what is planned after them, with and without a step in flight.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use omnibus_core::{
    CacheGroup, Event, FinishReason, Outcome, Plan, PrefixCache, Request, Schedule, Scheduler, SequenceId,
    SequenceOutput, Settings, Stop, SwapSettings, Token, TokenSource, Tuning,
};
use omnibus_kv::CacheKind;

fn settings(schedule: Schedule) -> Settings {
    Settings {
        block_size: 4,
        groups: vec![CacheGroup::of_kind(CacheKind::Full, 16)],
        max_sequences: 4,
        max_step_tokens: 16,
        max_queue: 8,
        max_offline_queue: 8,
        max_context: 64,
        max_span_tokens: 64,
        schedule,
        tuning: Tuning::default(),
        prefix_cache: PrefixCache::On,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    }
}

fn apply(scheduler: &mut Scheduler) -> Plan {
    let plan = scheduler.plan(0);
    scheduler.apply(&plan);
    scheduler.audit();
    plan
}

fn commit(scheduler: &mut Scheduler, plan: &Plan, output: SequenceOutput) -> Vec<Event> {
    let events = scheduler.commit(Outcome { plan: plan.id, outputs: vec![output], took: None });
    scheduler.audit();
    events
}

fn force(scheduler: &mut Scheduler, id: SequenceId, tokens: &[Token], stop: Stop) -> Vec<Event> {
    let events = scheduler.force(id, tokens, stop);
    scheduler.audit();
    events
}

/// A scheduler whose one sequence has computed its prompt of six tokens.
fn decoding(schedule: Schedule, max_new_tokens: usize) -> (Scheduler, SequenceId) {
    let mut scheduler = Scheduler::new(settings(schedule));
    let id = scheduler.submit(0, Request::new((0..6).collect(), max_new_tokens)).expect("it fits");
    let plan = apply(&mut scheduler);
    commit(&mut scheduler, &plan, SequenceOutput::token(100, Stop::No));
    (scheduler, id)
}

#[test]
fn forced_tokens_are_computed_in_one_step_with_the_token_before_them() {
    for schedule in [Schedule::Fcfs, Schedule::Fair, Schedule::Split] {
        let (mut scheduler, id) = decoding(schedule, 20);
        let events = force(&mut scheduler, id, &[101, 102, 103], Stop::No);
        assert_eq!(events.len(), 3, "{events:?}");
        let plan = apply(&mut scheduler);
        let scheduled = &plan.scheduled[0];
        assert_eq!((scheduled.positions.clone(), scheduled.samples), (6..10, 1), "{schedule:?}");
        assert_eq!(scheduled.input, TokenSource::Known);
        commit(&mut scheduler, &plan, SequenceOutput::token(104, Stop::No));
        assert_eq!(scheduler.tokens(id)[6..], [100, 101, 102, 103, 104]);
        assert_eq!(scheduler.stats().forced_tokens_total, 3);
    }
}

#[test]
fn a_sample_in_flight_is_superseded_and_the_next_step_does_not_wait_for_it() {
    let (mut scheduler, id) = decoding(Schedule::Fair, 20);
    let first = apply(&mut scheduler);
    let ahead = apply(&mut scheduler);
    assert_eq!(ahead.scheduled[0].positions, 7..8);
    commit(&mut scheduler, &first, SequenceOutput::token(101, Stop::No));
    force(&mut scheduler, id, &[102, 103], Stop::No);
    let next = apply(&mut scheduler);
    assert_eq!((next.scheduled[0].positions.clone(), next.scheduled[0].samples), (8..10, 1));
    assert_eq!(next.scheduled[0].input, TokenSource::Known);
    assert!(commit(&mut scheduler, &ahead, SequenceOutput::Superseded).is_empty());
    assert_eq!(scheduler.tokens(id)[6..], [100, 101, 102, 103]);
    let after = apply(&mut scheduler);
    assert_eq!(after.scheduled[0].input, TokenSource::InFlight { plan: next.id, row: 0 });
    commit(&mut scheduler, &next, SequenceOutput::token(104, Stop::No));
    commit(&mut scheduler, &after, SequenceOutput::token(105, Stop::No));
    assert_eq!(scheduler.tokens(id)[10..], [104, 105]);
}

#[test]
fn forced_tokens_may_be_the_last() {
    let (mut scheduler, id) = decoding(Schedule::Fair, 4);
    let ahead = apply(&mut scheduler);
    let events = force(&mut scheduler, id, &[101, 102], Stop::Yes);
    let finished = Event::Finished { sequence: id, reason: FinishReason::Stop };
    assert_eq!(events.last(), Some(&finished));
    commit(&mut scheduler, &ahead, SequenceOutput::Superseded);
    assert!(scheduler.is_idle());
    assert!(force(&mut scheduler, id, &[103], Stop::No).is_empty(), "it has ended");
}

#[test]
fn blocks_of_forced_tokens_are_cached() {
    let (mut scheduler, id) = decoding(Schedule::Fair, 20);
    force(&mut scheduler, id, &[101, 102, 103, 104, 105], Stop::No);
    let plan = apply(&mut scheduler);
    commit(&mut scheduler, &plan, SequenceOutput::token(106, Stop::Yes));
    let prompt = [0, 1, 2, 3, 4, 5, 100, 101, 102, 103, 104, 105, 106, 107];
    scheduler.submit(0, Request::new(prompt.to_vec(), 4)).expect("it fits");
    assert!(scheduler.plan(0).scheduled[0].cached >= 12);
}

#[test]
#[should_panic(expected = "a token is left to sample")]
fn a_limit_is_not_reached_by_forced_tokens_alone() {
    let (mut scheduler, id) = decoding(Schedule::Fair, 4);
    scheduler.force(id, &[1, 2, 3], Stop::No);
}
