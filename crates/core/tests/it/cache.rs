//! What is found of a sequence, and what is kept, in situations worth knowing by name.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use omnibus_core::{
    Allocation, CacheEvent, CacheEvents, CacheGroup, CacheMiss, HoldReason, Offload, Outcome, Plan,
    PreemptionPolicy, PrefixCache, PrefixLookup, Request, Schedule, Scheduler, SequenceId, SequenceOutput,
    Settings, Stop, SwapSettings, Token, Tuning,
};
use omnibus_kv::CacheKind;

const FULL: CacheKind = CacheKind::Full;

/// Room for everything, in blocks of four.
fn settings(groups: &[(CacheKind, u32)]) -> Settings {
    Settings {
        block_size: 4,
        groups: groups.iter().map(|&(kind, blocks)| CacheGroup::of_kind(kind, blocks)).collect(),
        max_sequences: 8,
        max_step_tokens: 64,
        max_queue: 8,
        max_offline_queue: 8,
        max_context: 128,
        max_span_tokens: 128,
        schedule: Schedule::Fcfs,
        tuning: Tuning::default(),
        prefix_cache: PrefixCache::On,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    }
}

/// Plans and begins a step.
fn begin(scheduler: &mut Scheduler) -> (Plan, Allocation) {
    let plan = scheduler.plan(0);
    let begun = scheduler.apply(&plan);
    scheduler.audit();
    (plan, begun)
}

/// Commits a step whose samples are all 1.
fn commit(scheduler: &mut Scheduler, plan: &Plan) {
    let samples = plan.scheduled.iter().filter(|scheduled| scheduled.samples > 0);
    let outputs = samples.map(|_| SequenceOutput::token(1, Stop::No)).collect();
    scheduler.commit(Outcome { plan: plan.id, outputs, took: None });
    scheduler.audit();
}

/// Submits, runs to the end, and says how many tokens were found.
fn ask(scheduler: &mut Scheduler, request: Request) -> usize {
    let id = scheduler.submit(0, request).expect("it fits");
    let mut cached = 0;
    while !scheduler.is_idle() {
        let (plan, _) = begin(scheduler);
        cached += plan
            .scheduled
            .iter()
            .filter(|scheduled| scheduled.sequence == id)
            .map(|scheduled| scheduled.cached)
            .sum::<usize>();
        commit(scheduler, &plan);
    }
    cached
}

fn prompt(number: u32, len: u32) -> Vec<Token> {
    (0..len).map(|at| number * 100 + at).collect()
}

fn submit(scheduler: &mut Scheduler, prompt: Vec<Token>) -> SequenceId {
    scheduler.submit(0, Request::new(prompt, 1)).expect("it fits")
}

#[test]
fn evicted_blocks_are_restored_from_a_tier() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 5)]));
    ask(&mut scheduler, Request::new(prompt(1, 13), 1));
    let stored: BTreeSet<_> =
        scheduler.take_newly_cached(usize::MAX).into_iter().map(|block| (block.group, block.hash)).collect();
    assert_eq!(stored.len(), 3);
    assert!(scheduler.take_newly_cached(usize::MAX).is_empty(), "once");
    ask(&mut scheduler, Request::new(prompt(2, 17), 1));
    let has = |group, key| stored.contains(&(group, key));
    let id = submit(&mut scheduler, prompt(1, 13));
    assert_eq!(scheduler.missing_blocks(id, has).len(), 3);
    scheduler.hold(id, HoldReason::Transfer);
    assert!(scheduler.plan(0).is_empty(), "who is held is not planned");
    let restored = scheduler.restore(id, has);
    assert_eq!(restored.iter().map(|restored| restored.hash).collect::<BTreeSet<_>>().len(), 3);
    assert!(scheduler.missing_blocks(id, has).is_empty());
    scheduler.release_hold(id, HoldReason::Transfer);
    assert_eq!(scheduler.plan(0).scheduled[0].cached, 12);
    scheduler.take_newly_cached(usize::MAX);
    assert!(scheduler.restore(id, has).is_empty());
    let (plan, _) = begin(&mut scheduler);
    commit(&mut scheduler, &plan);
    assert!(scheduler.take_newly_cached(usize::MAX).is_empty(), "what is stored is not stored again");
}

#[test]
fn restoring_takes_no_blocks_from_running_sequences() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 6)]));
    ask(&mut scheduler, Request::new(prompt(1, 21), 1));
    let stored: BTreeSet<_> =
        scheduler.take_newly_cached(usize::MAX).into_iter().map(|block| block.hash).collect();
    scheduler.submit(0, Request::new(prompt(2, 15), 9)).expect("it fits");
    let (plan, _) = begin(&mut scheduler);
    commit(&mut scheduler, &plan);
    let id = submit(&mut scheduler, prompt(1, 21));
    assert_eq!(scheduler.missing_blocks(id, |_, key| stored.contains(&key)).len(), 3, "two were left over");
    assert!(scheduler.restore(id, |_, key| stored.contains(&key)).is_empty(), "they take all the room");
    scheduler.audit();
}

#[test]
fn a_restored_block_replaces_a_pending_swap() {
    let swap = SwapSettings { preemption: PreemptionPolicy::Swap, offload: Offload::Available };
    let mut scheduler = Scheduler::new(Settings { swap, ..settings(&[(FULL, 4)]) });
    let [_, younger] =
        [1, 2].map(|number| scheduler.submit(0, Request::new(prompt(number, 7), 9)).expect("it fits"));
    let (first, _) = begin(&mut scheduler);
    let (second, _) = begin(&mut scheduler);
    commit(&mut scheduler, &first);
    let (third, begun) = begin(&mut scheduler);
    assert_eq!(third.preempt.iter().map(|gone| gone.sequence).collect::<Vec<_>>(), [younger]);
    assert!(begun.swaps.is_empty(), "a step in flight uses its blocks");
    commit(&mut scheduler, &second);
    let other = submit(&mut scheduler, prompt(3, 5));
    let restored = scheduler.restore(other, |_, _| true);
    assert_eq!(restored.len(), 1);
    let (_, begun) = begin(&mut scheduler);
    assert_eq!(begun.swaps.len(), 1, "of two blocks one is left: {:?}", begun.swaps);
    assert_ne!(begun.swaps[0].block, restored[0].block);
}

#[test]
fn only_blocks_inside_a_window_are_restored() {
    let mut scheduler =
        Scheduler::new(settings(&[(FULL, 12), (CacheKind::SlidingWindow { tokens: 5, sinks: 0 }, 12)]));
    let id = submit(&mut scheduler, prompt(1, 21));
    let absent = scheduler.missing_blocks(id, |_, _| true);
    let of = |group| absent.iter().filter(|(of, _)| *of == group).count();
    assert_eq!((of(0), of(1)), (5, 1));
    let less = scheduler.missing_blocks(id, |group, key| group == 0 || key != absent.last().unwrap().1);
    assert_eq!(less.len(), 5, "four blocks and the window before the one that is lost");
}

#[test]
fn states_are_checkpointed_at_message_boundaries_and_copied_for_equal_prefixes() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 32), (CacheKind::State, 4)]));
    let request = |boundaries: Vec<usize>| Request { boundaries, ..Request::new(prompt(1, 22), 1) };
    scheduler.submit(0, request(vec![9])).expect("it fits");
    let mut copied = Vec::new();
    while !scheduler.is_idle() {
        let (plan, begun) = begin(&mut scheduler);
        copied.push((plan.scheduled[0].positions.clone(), begun.copies.len()));
        commit(&mut scheduler, &plan);
    }
    assert_eq!(copied, [(0..8, 0), (8..20, 1), (20..22, 1)], "after eight and after twenty");
    assert_eq!(ask(&mut scheduler, Request::new([prompt(1, 22), prompt(2, 5)].concat(), 1)), 20);
    assert_eq!(ask(&mut scheduler, Request::new([prompt(1, 19), prompt(3, 5)].concat(), 1)), 8);
    scheduler.submit(0, request(Vec::new())).expect("it fits");
    let (plan, begun) = begin(&mut scheduler);
    let own = scheduler.block_table(plan.scheduled[0].sequence, 1).blocks[0];
    assert_eq!(begun.copies.iter().map(|copy| (copy.group, copy.to)).collect::<Vec<_>>(), [(1, own)]);
}

#[test]
fn a_partly_matching_block_is_copied() {
    let mut scheduler =
        Scheduler::new(settings(&[(FULL, 32), (CacheKind::SlidingWindow { tokens: 6, sinks: 0 }, 16)]));
    ask(&mut scheduler, Request::new(prompt(1, 16), 1));
    let changed = [prompt(1, 14), prompt(2, 5)].concat();
    scheduler.submit(0, Request::new(changed, 1)).expect("it fits");
    let (plan, begun) = begin(&mut scheduler);
    assert_eq!(plan.scheduled[0].cached, 14);
    let to = |group| scheduler.block_table(plan.scheduled[0].sequence, group);
    let expected = [to(0).blocks[3], to(1).blocks[3 - to(1).freed_blocks]];
    assert_eq!(begun.copies.iter().map(|copy| copy.to).collect::<Vec<_>>(), expected);
}

#[test]
fn a_conversation_resumes_inside_a_block() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 32)]));
    ask(&mut scheduler, Request::new(prompt(1, 5), 6));
    let next = [prompt(1, 5), vec![1; 6], prompt(2, 3)].concat();
    assert_eq!(
        ask(&mut scheduler, Request::new(next, 1)),
        10,
        "all but the last token, which was never computed"
    );
}

#[test]
fn past_an_unquantized_prefix_its_blocks_are_not_needed() {
    let mut scheduler =
        Scheduler::new(settings(&[(FULL, 32), (CacheKind::UnquantizedPrefix { tokens: 10 }, 4)]));
    ask(&mut scheduler, Request::new(prompt(1, 22), 1));
    assert_eq!(ask(&mut scheduler, Request::new([prompt(1, 7), prompt(2, 2)].concat(), 1)), 7, "it was kept");
    ask(&mut scheduler, Request::new(prompt(3, 22), 1));
    ask(&mut scheduler, Request::new(prompt(6, 22), 1));
    let behind = [prompt(1, 22), prompt(4, 2)].concat();
    assert_eq!(ask(&mut scheduler, Request::new(behind, 1)), 22, "a block's beginning, too");
    assert_eq!(ask(&mut scheduler, Request::new([prompt(1, 7), prompt(5, 2)].concat(), 1)), 0, "it is gone");
}

#[test]
fn only_readable_blocks_of_an_unquantized_prefix_are_cached() {
    let mut scheduler =
        Scheduler::new(settings(&[(FULL, 32), (CacheKind::UnquantizedPrefix { tokens: 10 }, 16)]));
    let id = scheduler.submit(0, Request::new(prompt(1, 22), 1)).expect("it fits");
    let (plan, _) = begin(&mut scheduler);
    let hashes = scheduler.block_hashes(id);
    commit(&mut scheduler, &plan);
    let found =
        |group| hashes.iter().filter(|hash| scheduler.find_cached_block(group, **hash).is_some()).count();
    assert_eq!((found(0), found(1)), (5, 3));
}

/// What the scheduler says of a request that is admitted at once.
fn look_up(scheduler: &mut Scheduler, request: Request) -> PrefixLookup {
    scheduler.submit(0, request).expect("it fits");
    let (plan, begun) = begin(scheduler);
    commit(scheduler, &plan);
    while !scheduler.is_idle() {
        let (plan, _) = begin(scheduler);
        commit(scheduler, &plan);
    }
    begun.lookups[0]
}

#[test]
fn a_miss_has_a_reason() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 8)]));
    let mut miss = |request: Request| look_up(&mut scheduler, request).miss;
    let first = Request::new(prompt(1, 13), 1);
    assert_eq!(miss(first.clone()), Some(CacheMiss::Cold));
    assert_eq!(miss(first.clone()), None);
    assert_eq!(miss(Request { cache_salt: 9, ..first.clone() }), Some(CacheMiss::Salt));
    let changed = [prompt(1, 10), prompt(2, 6)].concat();
    let changed = Request { history: 5..14, ..Request::new(changed, 1) };
    assert_eq!(miss(changed.clone()), Some(CacheMiss::HistoryChanged { position: 10 }));
    let newest = Request { history: 5..9, ..Request::new([prompt(1, 10), prompt(3, 6)].concat(), 1) };
    assert_eq!(miss(newest), Some(CacheMiss::Cold), "what is different is new");
    assert_eq!(miss(Request::new(prompt(4, 30), 1)), Some(CacheMiss::Cold));
    assert_eq!(miss(first), Some(CacheMiss::Evicted));
    assert_eq!(scheduler.stats().prefix_misses.by_reason().map(|(_, count)| count), [0, 0, 0, 1, 1, 1, 3]);
}

#[test]
fn a_miss_names_a_missing_window_or_state() {
    let window = CacheKind::SlidingWindow { tokens: 5, sinks: 0 };
    for (kind, blocks, expected) in [(window, 4, CacheMiss::Window), (CacheKind::State, 1, CacheMiss::State)]
    {
        let mut scheduler = Scheduler::new(settings(&[(FULL, 32), (kind, blocks)]));
        look_up(&mut scheduler, Request::new(prompt(1, 13), 1));
        look_up(&mut scheduler, Request::new(prompt(2, 16), 1));
        assert_eq!(look_up(&mut scheduler, Request::new(prompt(1, 13), 1)).miss, Some(expected));
    }
}

/// A turn of session 7.
fn turn(tokens: Vec<Token>) -> Request {
    Request { session: Some(7), ..Request::new(tokens, 1) }
}

#[test]
fn a_session_is_evicted_last() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 10)]));
    ask(&mut scheduler, turn(prompt(1, 17)));
    for number in 2..6 {
        ask(&mut scheduler, Request::new(prompt(number, 17), 1));
    }
    let info = scheduler.sessions(0)[0];
    assert_eq!((info.session, info.tokens, info.blocks), (7, 16, 4));
    assert_eq!(ask(&mut scheduler, turn(prompt(1, 17))), 16);
    assert_eq!(
        ask(&mut scheduler, Request::new(prompt(8, 39), 1)),
        0,
        "a session takes no memory from a request"
    );
    assert_eq!(scheduler.sessions(0)[0].tokens, 0);
}

#[test]
fn branches_of_a_session_share_their_prefix_and_are_both_kept() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 16)]));
    let fork = |number| [prompt(1, 8), prompt(number, 5)].concat();
    ask(&mut scheduler, turn(prompt(1, 9)));
    ask(&mut scheduler, turn(fork(2)));
    ask(&mut scheduler, turn(fork(3)));
    let info = scheduler.sessions(0)[0];
    assert_eq!((info.tokens, info.blocks), (12, 4), "two in common, and one each");
    assert_eq!(scheduler.stats().groups[0].pinned, 4);
    assert!(scheduler.drop_session(7));
    assert!(!scheduler.drop_session(7), "once");
    assert_eq!((scheduler.stats().groups[0].pinned, scheduler.stats().sessions), (0, 0));
    assert_eq!(ask(&mut scheduler, turn(fork(2))), 12, "until its memory is needed");
}

#[test]
fn an_unused_session_expires() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 16)]));
    ask(&mut scheduler, turn(prompt(1, 9)));
    assert_eq!(scheduler.sessions(999).len(), 1);
    assert!(scheduler.sessions(1_000).is_empty());
    scheduler.submit(1_000, Request::new(prompt(2, 3), 1)).expect("it fits");
    assert_eq!((scheduler.stats().sessions, scheduler.stats().groups[0].pinned), (0, 0));
    scheduler.audit();
}

/// Applies events to the cached blocks, and checks that each fits.
fn follow(cached: &mut BTreeSet<u128>, events: Vec<CacheEvent>) {
    for event in events {
        match event {
            CacheEvent::Stored(block) => {
                assert_eq!(block.tokens.len(), 4, "a partial block is no event");
                assert!(cached.insert(block.hash), "it is stored once");
            }
            CacheEvent::Removed(hash) => assert!(cached.remove(&hash), "it was stored before"),
            CacheEvent::Cleared => cached.clear(),
        }
    }
}

#[test]
fn events_give_the_cached_blocks() {
    let mut scheduler =
        Scheduler::new(Settings { cache_events: CacheEvents::Kept, ..settings(&[(FULL, 6)]) });
    let mut cached = BTreeSet::from([0]);
    for round in 0..40 {
        let first = round % 7;
        let prompt: Vec<Token> = (0..9 + round % 6).map(|at| if at < 4 { first } else { at }).collect();
        let id = scheduler.submit(0, Request::new(prompt, 3)).expect("it fits");
        let mut hashes = Vec::new();
        while !scheduler.is_idle() {
            let (plan, _) = begin(&mut scheduler);
            hashes = scheduler.block_hashes(id);
            commit(&mut scheduler, &plan);
            follow(&mut cached, scheduler.take_cache_events());
        }
        for hash in hashes {
            let found = scheduler.find_cached_block(0, hash).is_some();
            assert_eq!(cached.contains(&hash), found, "{hash:x} in round {round}");
        }
    }
    assert!(cached.len() > 2 && cached.len() <= 6, "some were evicted: {cached:?}");
    scheduler.fail_steps();
    follow(&mut cached, scheduler.take_cache_events());
    assert_eq!(cached, BTreeSet::new());
}

#[test]
fn a_stored_block_names_the_one_before_it() {
    let mut scheduler =
        Scheduler::new(Settings { cache_events: CacheEvents::Kept, ..settings(&[(FULL, 8)]) });
    assert_eq!(scheduler.take_cache_events(), [CacheEvent::Cleared], "the cache is empty at first");
    ask(&mut scheduler, Request { adapter: 5, ..Request::new((0..8).collect(), 1) });
    let events = scheduler.take_cache_events();
    let stored: Vec<_> = events
        .iter()
        .map(|event| match event {
            CacheEvent::Stored(block) => (block.parent, block.tokens.clone(), block.adapter),
            CacheEvent::Removed(_) | CacheEvent::Cleared => unreachable!("nothing was evicted: {event:?}"),
        })
        .collect();
    let first = match &events[..] {
        [CacheEvent::Stored(block), ..] => Some(block.hash),
        _ => None,
    };
    assert_eq!(stored, [(None, vec![0, 1, 2, 3], 5), (first, vec![4, 5, 6, 7], 5)]);
    let mut silent = Scheduler::new(settings(&[(FULL, 8)]));
    ask(&mut silent, Request::new((0..8).collect(), 1));
    assert_eq!(silent.take_cache_events(), []);
}

#[test]
fn blocks_that_two_sequences_hold_are_shared() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 32)]));
    let first = scheduler.submit(0, Request::new(prompt(1, 13), 9)).unwrap();
    let (plan, _) = begin(&mut scheduler);
    commit(&mut scheduler, &plan);
    let held = |scheduler: &Scheduler, id| {
        let held = scheduler.held_blocks(id);
        (held.blocks, held.shared)
    };
    assert_eq!(held(&scheduler, first), (4, 0));
    let second = scheduler.submit(0, Request::new([prompt(1, 8), prompt(2, 5)].concat(), 9)).unwrap();
    assert_eq!(held(&scheduler, second), (0, 0), "it waits");
    let (plan, _) = begin(&mut scheduler);
    commit(&mut scheduler, &plan);
    assert_eq!((held(&scheduler, first), held(&scheduler, second)), ((4, 2), (4, 2)));
    scheduler.cancel(second);
    assert_eq!((held(&scheduler, first), held(&scheduler, second)), ((4, 0), (0, 0)));
}
