//! Memory for one and a half sequences, and more who want it: all of them get to their end, whatever becomes of the blocks
//! that they give back.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use omnibus_core::sim::{Arrival, Report, Scenario, Tier, run};
use omnibus_core::{CacheGroup, Offload, PreemptionPolicy, Schedule, SwapSettings};
use omnibus_kv::CacheKind;

const BLOCK: usize = 4;
const SEQUENCES: usize = 5;
const PROMPT: usize = 23;
const ANSWER: usize = 41;
const TOKENS: usize = PROMPT + ANSWER;
/// Elements of a token, so that a block has a thousand bytes.
const ELEMENTS: usize = 64;
/// So long for a byte makes moving a block much faster than computing it, or much slower.
const FAST_NS: u64 = 1;
const SLOW_NS: u64 = 1_000_000;

/// Where blocks go, and how it is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Places {
    preemption: PreemptionPolicy,
    host_blocks: usize,
    disk_delay: u64,
    byte_ns: u64,
}

const NOWHERE: Places =
    Places { preemption: PreemptionPolicy::Recompute, host_blocks: 0, disk_delay: 0, byte_ns: FAST_NS };
const HOST: Places = Places { preemption: PreemptionPolicy::Swap, host_blocks: 1_000, ..NOWHERE };

/// Sequences that begin differently, all at once, with memory for one and a half of them.
fn scenario(schedule: Schedule, kinds: &[CacheKind], places: Places) -> Scenario {
    let mut scenario = Scenario::typical(1, 0, 1);
    let settings = &mut scenario.settings;
    settings.block_size = BLOCK;
    let blocks = |kind: &CacheKind| match kind {
        CacheKind::State => SEQUENCES as u32 + 4,
        CacheKind::Full
        | CacheKind::Latent
        | CacheKind::SlidingWindow { .. }
        | CacheKind::UnquantizedPrefix { .. } => (TOKENS.div_ceil(BLOCK) * 3 / 2) as u32,
    };
    settings.groups = kinds.iter().map(|kind| CacheGroup::of_kind(*kind, blocks(kind))).collect();
    settings.groups.iter_mut().for_each(|group| group.spec.elements = ELEMENTS);
    settings.schedule = schedule;
    settings.max_step_tokens = 32;
    settings.swap = SwapSettings { preemption: places.preemption, offload: Offload::Available };
    let arrival = |at: usize| Arrival {
        at: at as u64,
        prompt: PROMPT,
        max_new_tokens: ANSWER,
        answer: ANSWER,
        conversation: at as u64,
        alike: TOKENS,
        ..Arrival::default()
    };
    scenario.arrivals = (0..SEQUENCES).map(arrival).collect();
    scenario.tier = Tier {
        delay: places.disk_delay,
        host_blocks: places.host_blocks,
        byte_ns: (places.byte_ns, places.byte_ns),
        ..Tier::default()
    };
    scenario
}

fn every_schedule() -> [Schedule; 4] {
    [Schedule::Fair, Schedule::Fcfs, Schedule::Static, Schedule::Split]
}

/// The first in line is in at least every sixth step, in every twelfth if it was ever held, and is then done after as
/// many steps as it has tokens; so all are done after this many.
fn steps_max(places: Places) -> u64 {
    let every = if places.disk_delay > 0 { 12 } else { 6 };
    (every * SEQUENCES * TOKENS) as u64
}

/// A sequence that is not the first is admitted only if all of it fits beside the others. So when it is preempted, those
/// before it in line have grown by a block since, which is bounded.
const PREEMPTIONS_MAX: u64 = (SEQUENCES * TOKENS.div_ceil(BLOCK)) as u64;

/// The simulation itself checks each token and the starvation bound. Whether all sequences end soon is checked here.
fn play(schedule: Schedule, kinds: &[CacheKind], places: Places) -> Report {
    let report = run(&scenario(schedule, kinds, places));
    let world = format!("{schedule:?} {kinds:?} {places:?} {report:#?}");
    assert_eq!((report.completed, report.tokens), (SEQUENCES, (SEQUENCES * ANSWER) as u64), "{world}");
    assert!(report.steps <= steps_max(places), "{} steps: {world}", steps_max(places));
    assert!(report.stats.preemptions_total <= PREEMPTIONS_MAX, "{world}");
    assert!(report.stats.groups.iter().all(|group| group.used == 0), "{world}");
    report
}

#[test]
fn all_sequences_finish_with_memory_for_one_and_a_half() {
    let window = CacheKind::SlidingWindow { tokens: 9, sinks: 3 };
    let mixtures: [&[CacheKind]; 5] = [
        &[CacheKind::Full],
        &[CacheKind::Full, window],
        &[CacheKind::Full, CacheKind::State],
        &[CacheKind::Full, window, CacheKind::State],
        &[CacheKind::Full, CacheKind::UnquantizedPrefix { tokens: PROMPT + ANSWER / 2 }],
    ];
    let cheaper = Places { preemption: PreemptionPolicy::Auto, ..HOST };
    let places = [
        NOWHERE,
        HOST,
        cheaper,
        Places { byte_ns: SLOW_NS, ..cheaper },
        Places { host_blocks: 7, ..HOST },
        Places { host_blocks: 0, disk_delay: 3_000, ..HOST },
        Places { disk_delay: 3_000, host_blocks: 7, ..cheaper },
    ];
    let (mut preempted, mut swapped) = (0, 0);
    for schedule in every_schedule() {
        for kinds in mixtures {
            for places in places {
                let report = play(schedule, kinds, places);
                preempted += report.stats.preemptions_total;
                swapped += report.swapped_in;
            }
        }
    }
    assert!(preempted > 100 && swapped > 100, "{preempted} sent back, {swapped} blocks came back");
}

#[test]
fn swapped_blocks_are_not_recomputed() {
    for schedule in every_schedule() {
        let (without, with) =
            (play(schedule, &[CacheKind::Full], NOWHERE), play(schedule, &[CacheKind::Full], HOST));
        // The last token is sampled and never computed. Of a block that is not full, nothing is moved.
        let least = (SEQUENCES * (TOKENS - 1)) as u64;
        let most = least + with.stats.preemptions_total * (BLOCK as u64 - 1) + SEQUENCES as u64;
        let computed = with.stats.computed_tokens_total;
        assert!((least..=most).contains(&computed), "{schedule:?}: {computed} of {least}");
        assert!(computed < without.stats.computed_tokens_total, "{schedule:?}");
    }
}

#[test]
fn expensive_transfers_are_tried_once_and_cheap_ones_are_made() {
    for schedule in every_schedule() {
        let cheaper = |byte_ns| Places { preemption: PreemptionPolicy::Auto, byte_ns, ..HOST };
        let fast = play(schedule, &[CacheKind::Full], cheaper(FAST_NS)).stats;
        assert_eq!(fast.swap_preemptions_total, fast.preemptions_total, "{schedule:?}");
        let slow = play(schedule, &[CacheKind::Full], cheaper(SLOW_NS)).stats;
        assert_eq!(slow.swap_preemptions_total, 1, "{schedule:?}");
        assert!(slow.preemptions_total > 3, "{schedule:?}");
    }
}
