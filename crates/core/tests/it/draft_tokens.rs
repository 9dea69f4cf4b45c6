//! Steps that yield several tokens for a sequence: what is planned, and what is left when a part is accepted.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use omnibus_core::{
    CacheGroup, Event, FinishReason, Outcome, Plan, PrefixCache, Request, Schedule, Scheduler, SequenceId,
    SequenceOutput, Settings, Stop, SwapSettings, Token, TokenSource, Tuning,
};
use omnibus_kv::{BlockId, CacheKind};

/// Room for everything, in blocks of four.
fn settings(groups: &[(CacheKind, u32)]) -> Settings {
    Settings {
        block_size: 4,
        groups: groups.iter().map(|&(kind, blocks)| CacheGroup::of_kind(kind, blocks)).collect(),
        max_sequences: 4,
        max_step_tokens: 16,
        max_queue: 8,
        max_offline_queue: 8,
        max_context: 64,
        max_span_tokens: 64,
        schedule: Schedule::Fcfs,
        tuning: Tuning::default(),
        prefix_cache: PrefixCache::On,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    }
}

/// A sequence with a prompt of `prompt` tokens that verifies three draft tokens a step.
fn submit(scheduler: &mut Scheduler, prompt: u32, max_new_tokens: usize) -> SequenceId {
    let request = Request::new((0..prompt).collect(), max_new_tokens);
    let id = scheduler.submit(0, request).expect("it fits");
    scheduler.set_draft_tokens(id, 3);
    id
}

fn apply(scheduler: &mut Scheduler) -> Plan {
    let plan = scheduler.plan(0);
    scheduler.apply(&plan);
    scheduler.audit();
    plan
}

fn commit(scheduler: &mut Scheduler, plan: &Plan, tokens: &[Token], stop: Stop) -> Vec<Event> {
    let outputs = vec![SequenceOutput::Accepted { tokens: tokens.into(), stop }];
    let events = scheduler.commit(Outcome { plan: plan.id, outputs, took: None });
    scheduler.audit();
    events
}

/// The state of a scheduler whose one sequence has computed its prompt.
fn decoding(groups: &[(CacheKind, u32)], prompt: u32, max_new_tokens: usize) -> (Scheduler, SequenceId) {
    let mut scheduler = Scheduler::new(settings(groups));
    let id = submit(&mut scheduler, prompt, max_new_tokens);
    let plan = apply(&mut scheduler);
    assert_eq!(plan.scheduled[0].samples, 1, "a prompt has no draft tokens");
    assert!(scheduler.plan(0).is_empty(), "drafts follow a token that is in flight");
    commit(&mut scheduler, &plan, &[100], Stop::No);
    (scheduler, id)
}

fn blocks(scheduler: &Scheduler, id: SequenceId, group: usize) -> Vec<BlockId> {
    scheduler.block_table(id, group).blocks.clone()
}

#[test]
fn what_is_behind_the_last_accepted_token_is_given_back() {
    let (mut scheduler, id) = decoding(&[(CacheKind::Full, 8)], 6, 20);
    let plan = apply(&mut scheduler);
    let scheduled = &plan.scheduled[0];
    assert_eq!((scheduled.positions.clone(), scheduled.samples, scheduled.draft_tokens()), (6..10, 4, 3));
    assert_eq!((scheduled.input, scheduled.is_decode()), (TokenSource::Known, true));
    assert_eq!(blocks(&scheduler, id, 0).len(), 3);
    assert!(scheduler.plan(0).is_empty(), "how many tokens it will have is not known");
    let events = commit(&mut scheduler, &plan, &[101, 102], Stop::No);
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(scheduler.tokens(id)[6..], [100, 101, 102]);
    assert_eq!(blocks(&scheduler, id, 0).len(), 2, "positions 0 to 7");
    assert_eq!(apply(&mut scheduler).scheduled[0].positions, 8..12);
    let stats = scheduler.stats();
    assert_eq!((stats.draft_tokens_total, stats.accepted_draft_tokens_total), (6, 1));
    let positions = stats.draft_positions.map(|position| (position.verified, position.accepted));
    assert_eq!((stats.drafts_total, &positions[..4]), (1, &[(1, 1), (1, 0), (1, 0), (0, 0)][..]));
}

#[test]
fn only_accepted_tokens_are_cached() {
    let (mut scheduler, id) = decoding(&[(CacheKind::Full, 8)], 6, 20);
    let plan = apply(&mut scheduler);
    commit(&mut scheduler, &plan, &[101], Stop::No);
    let cached = |scheduler: &Scheduler| {
        let hashes = scheduler.block_hashes(id);
        hashes.iter().filter(|hash| scheduler.find_cached_block(0, **hash).is_some()).count()
    };
    assert_eq!((scheduler.block_hashes(id).len(), cached(&scheduler)), (2, 1), "position 7 is not computed");
    let plan = apply(&mut scheduler);
    commit(&mut scheduler, &plan, &[102], Stop::No);
    assert_eq!(cached(&scheduler), 2);
}

#[test]
fn the_state_after_the_last_accepted_token_is_kept() {
    let (mut scheduler, id) = decoding(&[(CacheKind::Full, 8), (CacheKind::State, 5)], 3, 20);
    let own = blocks(&scheduler, id, 1);
    let plan = apply(&mut scheduler);
    let slots = blocks(&scheduler, id, 1);
    assert_eq!((own[0], slots.len()), (slots[0], 4), "a slot for each sample");
    commit(&mut scheduler, &plan, &[101, 102, 103], Stop::No);
    assert_eq!(blocks(&scheduler, id, 1), [slots[2]]);
}

#[test]
fn draft_tokens_take_nothing_that_is_not_left_over() {
    let (mut scheduler, _) = decoding(&[(CacheKind::Full, 8), (CacheKind::State, 2)], 3, 20);
    assert_eq!(scheduler.plan(0).scheduled[0].samples, 2, "one more state slot");
    let (scheduler_of_two_blocks, _) = decoding(&[(CacheKind::Full, 2)], 6, 3);
    assert_eq!(
        scheduler_of_two_blocks.plan(0).scheduled[0].positions,
        6..8,
        "two blocks, and two tokens left"
    );
    let plan = apply(&mut scheduler);
    let events = commit(&mut scheduler, &plan, &[101], Stop::Yes);
    let reason = FinishReason::Stop;
    assert!(matches!(events[1], Event::Finished { reason: found, .. } if found == reason), "{events:?}");
    assert!(scheduler.is_idle());
}

#[test]
fn no_more_is_sampled_than_the_limit() {
    let (mut scheduler, _) = decoding(&[(CacheKind::Full, 8)], 6, 3);
    let plan = apply(&mut scheduler);
    assert_eq!(plan.scheduled[0].samples, 2);
    let events = commit(&mut scheduler, &plan, &[101, 102], Stop::No);
    assert!(matches!(events[2], Event::Finished { reason: FinishReason::Length, .. }), "{events:?}");
}

#[test]
fn the_number_of_draft_tokens_changes_between_steps() {
    let (mut scheduler, id) = decoding(&[(CacheKind::Full, 8)], 6, 20);
    scheduler.set_draft_tokens(id, 1);
    assert_eq!(scheduler.plan(0).scheduled[0].samples, 2);
    scheduler.set_draft_tokens(id, 0);
    let plan = apply(&mut scheduler);
    assert_eq!(plan.scheduled[0].samples, 1);
    let next = scheduler.plan(0);
    assert!(matches!(next.scheduled[0].input, TokenSource::InFlight { .. }), "plain steps overlap");
}

#[test]
#[should_panic(expected = "as many as were sampled")]
fn an_outcome_has_no_more_tokens_than_were_sampled() {
    let (mut scheduler, _) = decoding(&[(CacheKind::Full, 8)], 6, 20);
    let plan = apply(&mut scheduler);
    commit(&mut scheduler, &plan, &[1, 2, 3, 4, 5], Stop::No);
}
